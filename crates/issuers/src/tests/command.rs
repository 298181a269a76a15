//! What a command of the site says, and every way in which it does not.

use super::*;

pub(super) fn site(script: &str) -> Issuers {
    let file = json!({"introspection": {
        "name": "globus", "command": ["sh", "-c", script],
        "maps": [{"if": {"project": "p"}, "project": "p", "may": ["read"], "topics": ["**"]}],
    }});
    Issuers::parse(&file.to_string()).unwrap()
}

#[test]
fn a_command_of_the_site_says_who_somebody_is() {
    let script = r#"read t; case $t in
        good) echo '{"active": true, "sub": "alice", "project": "p"}';;
        short) echo '{"active": true, "sub": "alice", "project": "p", "exp": 1796112060}';;
        s3m) echo '{"token": {"username": "p_auser", "project": "p"}}';;
        other) echo '{"active": true, "sub": "alice", "project": "q"}';;
        late) echo '{"active": true, "sub": "alice", "project": "p", "exp": 1796111999}';;
        nobody) echo '{"active": true, "project": "p"}';;
        odd) echo '{"active": "true", "sub": "alice", "project": "p"}';;
        number) echo '{"active": true, "sub": 7, "username": "alice", "project": "p"}';;
        like) echo '{"active": true, "sub": "username p_auser", "project": "p"}';;
        early) echo '{"active": true, "sub": "alice", "project": "p", "nbf": 1796112001}';;
        over) echo '{"active": false, "token": {"username": "p_auser", "project": "p"}}';;
        inner) echo '{"active": true, "token": {"active": false, "username": "u", "project": "p"}}';;
        both) echo '{"active": true, "token": {"username": "p_auser", "project": "p"}}';;
        *) echo '{"active": false}';; esac"#;
    let issuers = site(script);
    let ask = |text: &str| issuers.check(text, HERE, soon());
    let good = identity(ask("good").unwrap());
    assert_eq!(good.expires(), Some(at(NOW_S + 600)));
    let issued = good.credential.as_ref().unwrap().issued().unwrap();
    assert_eq!(issued.to_string(), "\"alice\" of \"globus\"");
    assert_eq!(
        identity(ask("short").unwrap()).expires(),
        Some(at(NOW_S + 60))
    );
    assert!(
        identity(ask("s3m").unwrap())
            .to_string()
            .contains("p_auser")
    );
    assert!(ask("both").is_ok());
    // Who is one by `username` is nobody's `sub`.
    let subject = |text: &str| {
        let identity = identity(ask(text).unwrap());
        identity.issued().unwrap().subject.clone()
    };
    assert_eq!(
        (subject("s3m").as_str(), subject("good").as_str()),
        ("username p_auser", "alice")
    );
    for (text, part) in [
        ("number", "names no subject"),
        ("like", "names no subject"),
        ("early", "not good yet"),
        ("over", "not active"),
        ("inner", "not active"),
        ("other", "maps it"),
        ("late", "expired at"),
        ("nobody", "names no subject"),
        ("odd", "not active"),
        ("wrong", "not active"),
    ] {
        let why = ask(text).unwrap_err();
        assert!(!matches!(why, Refusal::Unknown(_)), "{why:?}");
        assert!(why.to_string().contains(part), "{text}: {why}");
    }
}

#[test]
fn a_command_that_fails_lets_nobody_in_and_nothing_is_remembered_of_it() {
    let answer = r#"echo '{"active": true, "sub": "alice", "project": "p"}'"#;
    let failing = [
        ("exit 1".to_owned(), "failed: exit status: 1"),
        (format!("{answer}; exit 3"), "failed: exit status: 3"),
        (format!("{answer}; kill -9 $$"), "signal"),
        ("echo nonsense".to_owned(), "no object of JSON"),
        (format!("{answer}; {answer}"), "no object of JSON"),
        ("echo '[]'".to_owned(), "no object of JSON"),
        ("echo '{\"token\": 1}'".to_owned(), "no object of JSON"),
        ("printf '\\377'".to_owned(), "no text"),
        ("yes".to_owned(), "more than 65536 bytes"),
        ("true".to_owned(), "no object of JSON"),
        (answer.replace("\"active\": true, ", ""), "not say whether"),
    ];
    for (script, part) in failing {
        let why = site(&script).check("good", HERE, soon()).unwrap_err();
        assert!(matches!(why, Refusal::Unknown(_)), "{script}: {why:?}");
        assert!(why.to_string().contains(part), "{script}: {why}");
    }
    let none = json!({"introspection": {"command": ["/nonexistent"], "maps": []}});
    let none = Issuers::parse(&none.to_string()).unwrap();
    let why = none.check("good", HERE, soon()).unwrap_err();
    assert!(why.to_string().contains("cannot be started"), "{why}");
}

/// Whether a process runs. One that has ended and that nobody has waited for does not.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim()));
    let state = stat.ok().and_then(|stat| {
        let (_, state) = stat.rsplit_once(") ")?;
        state.chars().next()
    });
    !matches!(state, None | Some('Z' | 'X'))
}

/// Runs a command that starts others, whose numbers it writes to a file. Returns what came of it, and the numbers of
/// those that are left.
fn left_of(script: &str, deadline: Instant) -> (Result<access::Verified, Refusal>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("numbers");
    std::fs::write(&file, "").unwrap();
    let script = format!("{{ {script}; }} 3> {}", file.display());
    let result = site(&script).check("good", HERE, deadline);
    let numbers = std::fs::read_to_string(&file).unwrap();
    // What was killed is gone when the kernel has found time for it.
    let until = Instant::now() + Duration::from_secs(if result.is_ok() { 2 } else { 60 });
    while numbers.lines().any(runs) && Instant::now() < until {
        std::thread::yield_now();
    }
    let left = numbers.lines().filter(|number| runs(number));
    (result, left.map(str::to_owned).collect())
}

#[test]
fn nothing_is_left_of_a_command() {
    let answer = r#"echo '{"active": true, "sub": "alice", "project": "p"}'"#;
    // One that hangs is ended, with what it has started, also if it has closed its output.
    for script in [
        "echo $$ >&3; sleep 1000",
        "sleep 1000 & echo $$ $! | tr ' ' '\n' >&3; wait",
        "echo $$ >&3; exec >&-; sleep 1000",
        // Its child holds the output.
        "sleep 1000 & echo $! >&3",
    ] {
        let deadline = Instant::now() + Duration::from_secs(1);
        let (result, left) = left_of(script, deadline);
        let why = result.unwrap_err().to_string();
        assert!(why.contains("not answered in time"), "{script}: {why}");
        assert!(left.is_empty(), "{script}: {left:?}");
    }
    // One that has answered, and leaves something behind.
    let script = format!("sleep 1000 > /dev/null & echo $! >&3; {answer}");
    let (result, left) = left_of(&script, soon());
    assert!(result.is_ok() && left.is_empty(), "{result:?} {left:?}");
    let (result, left) = with(Fault::LeftBehind, || left_of(&script, soon()));
    assert!(result.is_ok() && left.len() == 1, "the fault is noticed");
    let kill = std::process::Command::new("kill").args(left).status();
    assert!(kill.unwrap().success());
}

/// One that reads nothing, or ends at once, is no harm: the token is in no pipe.
#[test]
fn a_command_need_not_read() {
    let script = r#"exec <&-; echo '{"active": true, "sub": "alice", "project": "p"}'"#;
    let long = "x".repeat(JWT_BYTES_MAX);
    assert!(site(script).check(&long, HERE, soon()).is_ok());
    let count = r#"n=$(wc -c < /dev/stdin); echo "{\"active\": true, \"sub\": \"$n\", \"project\": \"p\"}""#;
    let verified = site(count).check(&long, HERE, soon()).unwrap();
    let said = identity(verified).to_string();
    assert!(said.contains(&(JWT_BYTES_MAX + 1).to_string()), "{said}");
}

#[test]
fn an_answer_counts_for_a_while_and_can_be_forgotten() {
    let count = std::env::temp_dir().join(format!("thalweg-introspection-{}", std::process::id()));
    let script = format!(
        "read t; echo x >> {}; echo '{{\"active\": true}}'",
        count.display()
    );
    let introspection = Introspection::new(["sh", "-c", &script].map(str::to_owned).to_vec());
    let asked = || std::fs::read_to_string(&count).unwrap().lines().count();
    for _ in 0..3 {
        assert!(introspection.ask("good", soon()).unwrap().is_some());
    }
    assert_eq!(asked(), 1);
    introspection.forget("good");
    assert!(introspection.ask("good", soon()).unwrap().is_some());
    assert_eq!(asked(), 2);
    std::fs::remove_file(&count).unwrap();
    let long = "x".repeat(JWT_BYTES_MAX + 1);
    assert_eq!(introspection.ask(&long, soon()), Ok(None));
}

#[test]
fn an_answer_may_have_to_say_for_whom_it_is() {
    let of = |audience: &str| {
        let answer = format!(r#"{{"active": true, "sub": "a", "project": "p"{audience}}}"#);
        let mut file = json!({"introspection": {
            "command": ["sh", "-c", format!("echo '{answer}'")], "audience": AUDIENCE,
            "maps": [{"if": {}, "project": "p", "may": ["read"], "topics": ["**"]}],
        }});
        let for_us = Issuers::parse(&file.to_string()).unwrap();
        drop(
            file["introspection"]
                .as_object_mut()
                .unwrap()
                .remove("audience"),
        );
        let for_all = Issuers::parse(&file.to_string()).unwrap();
        assert!(for_all.check("good", HERE, soon()).is_ok());
        for_us.check("good", HERE, soon()).is_ok()
    };
    assert!(of(&format!(", \"aud\": [\"x\", {AUDIENCE:?}]")));
    assert!(!of(", \"aud\": \"x\"") && !of(""));
}

/// Several who ask about the same at once ask once, and nothing runs on behind the end.
#[test]
fn equal_asks_are_one_and_end_with_whoever_asks() {
    let directory = tempfile::tempdir().unwrap();
    let numbers = directory.path().join("numbers");
    let introspection = |script: &str| {
        let script = format!("echo $$ >> {}; {script}", numbers.display());
        Introspection::new(["sh", "-c", &script].map(str::to_owned).to_vec())
    };
    let begun = || std::fs::read_to_string(&numbers).unwrap_or_default();
    let one = introspection(r#"read t; echo '{"active": true}'"#);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(one.ask("good", soon()).unwrap().is_some()));
        }
    });
    assert_eq!(begun().lines().count(), 1);
    let hangs = introspection("sleep 1000");
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| hangs.ask("good", soon()));
        while begun().lines().count() < 2 {
            std::thread::yield_now();
        }
        hangs.end();
        assert!(!begun().lines().any(runs));
        assert!(asks.join().unwrap().is_err());
    });
    assert!(hangs.ask("other", soon()).unwrap_err().0.contains("ends"));
}

#[test]
fn a_command_that_is_replaced_is_stopped_and_one_that_stays_goes_on() {
    let of = |command: &str| {
        let file = json!({"introspection": {"command": ["sh", "-c", command], "maps": []}});
        Issuers::parse(&file.to_string()).unwrap()
    };
    let script = r#"echo '{"active": true}'"#;
    let (before, mut same) = (of(script), of(script));
    same.keep_answers_of(&before);
    let ask = |token: &str| {
        before
            .introspected
            .as_ref()
            .unwrap()
            .asked
            .ask(token, soon())
    };
    before.stop_if_replaced(&same);
    assert!(ask("one").is_ok());
    before.stop_if_replaced(&of("exit 1"));
    assert!(ask("two").unwrap_err().0.contains("replaced"));
    before.stop_if_replaced(&Issuers::default());
}
