use super::*;
use crate::directory::Directory;
use crate::faults::{self, Fault};
use crate::instances::surroundings;
use crate::options::Mode;
use access::{SEED_BYTES, Seed, Token, Verb};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Mutex, RwLock};

/// An interface whose instances are servers that end at once.
struct Rig {
    interface: Interface,
    lines: Arc<Mutex<Vec<String>>>,
}

fn run<T>(test: impl AsyncFnOnce(Rig) -> T) -> T {
    let parent = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let written = lines.clone();
        let report = Report::new(move |line| written.lock().unwrap().push(line.to_owned()));
        let mut around = surroundings(Directory::open(parent.path()).unwrap());
        around.report = report.clone();
        let clock = around.clock.clone();
        let now = std::time::SystemTime::now();
        let certificate =
            crate::certificate::Certificate::open(parent.path(), Vec::new(), None, now).unwrap();
        let instances = Instances::open("api.site.org".to_owned(), around).unwrap();
        let limits = Limits {
            wait: std::time::Duration::ZERO,
            ..Limits::default()
        };
        let interface = Interface {
            instances,
            keys: Keys::open(parent.path()).unwrap(),
            introspection: None,
            ways: Ways {
                domain: "stream.site.org".to_owned(),
                port: 443,
                dialled: None,
                mode: Mode::Pass,
                certificate: Arc::new(RwLock::new(certificate)),
            },
            host: "api.site.org".to_owned(),
            limits,
            clock,
            report,
        };
        test(Rig { interface, lines }).await
    })
}

impl Rig {
    fn token(&self, project: &str, verb: Verb) -> Token {
        let limits = access::Limits {
            project: Some(project.to_owned()),
            verbs: Some([verb].into_iter().collect()),
            ..access::Limits::default()
        };
        self.interface.keys.issue(&limits).unwrap()
    }

    async fn ask(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = Request {
            method,
            path,
            authorization: (!token.is_empty()).then_some(token),
            peer: [127, 0, 0, 1].into(),
            body: body.as_bytes(),
        };
        let answer = self.interface.handle(&request).await;
        (answer.status, serde_json::from_str(&answer.body).unwrap())
    }

    async fn status(&self, token: &str, method: &str, path: &str, body: &str) -> u16 {
        self.ask(token, method, path, body).await.0
    }
}

const BODY: &str =
    r#"{"kind": "general", "name": "run42", "resourceSettings": {"cpus": 2, "ram-gbs": 4}}"#;
const PROVISION: &str = "/olcf/open/v1alpha/streaming/rabbitmq/provision_cluster";
const RUN42: &str = "/olcf/v1alpha/streaming/rabbitmq/cluster/run42";

#[test]
fn only_who_may_manage_a_project_manages_its_instances() {
    let crosses = || {
        run(async |rig| {
            let own = rig.token("stf008", Verb::Manage).to_text();
            let (status, made) = rig.ask(&own, "POST", PROVISION, BODY).await;
            assert_eq!(
                (status, &made["name"], &made["project"]),
                (202, &"run42".into(), &"stf008".into())
            );
            assert_eq!(made["lifetime"]["secondsRemaining"], 7 * 24 * 3600);
            assert_eq!(rig.status(&own, "GET", RUN42, "").await, 200);
            assert_eq!(
                rig.status(&format!("Bearer {own}"), "GET", RUN42, "").await,
                200
            );
            assert_eq!(rig.status("", "GET", RUN42, "").await, 401);
            assert_eq!(rig.status("nonsense", "GET", RUN42, "").await, 401);
            assert_eq!(
                rig.status(&own[..own.len() - 4], "GET", RUN42, "").await,
                401
            );
            // Another project has no instance of that name, and is not told of this one.
            let other = rig.token("phy1", Verb::Manage).to_text();
            assert_eq!(rig.status(&other, "GET", RUN42, "").await, 404);
            assert_eq!(rig.status(&other, "DELETE", RUN42, "").await, 404);
            let list = "/olcf/v1alpha/streaming/rabbitmq/list_clusters";
            assert_eq!(
                rig.ask(&other, "GET", list, "").await.1["clusters"],
                serde_json::json!([])
            );
            assert_eq!(
                rig.ask(&own, "GET", list, "").await.1["clusters"][0]["name"],
                "run42"
            );
            // A reader of the project's topics manages nothing.
            let reader = rig.token("stf008", Verb::Read).to_text();
            rig.status(&reader, "DELETE", RUN42, "").await != 403
        })
    };
    assert!(!crosses());
    assert!(faults::with(Fault::WrongProject, crosses));
}

#[test]
fn a_body_names_no_other_project_and_a_name_is_no_path() {
    run(async |rig| {
        let own = rig.token("stf008", Verb::Manage).to_text();
        let body = r#"{"name": "x", "project": "phy1"}"#;
        assert_eq!(rig.status(&own, "POST", PROVISION, body).await, 403);
        for name in ["../x", "a/b", "", "A", "..", "x\\u0000", "%2e%2e"] {
            let body = format!("{{\"name\": \"{name}\"}}");
            assert_eq!(
                rig.status(&own, "POST", PROVISION, &body).await,
                400,
                "{name}"
            );
        }
        for name in ["..", "%2e%2e", "a%2fb", "A", "x.y"] {
            let path = format!("/olcf/v1alpha/streaming/rabbitmq/cluster/{name}");
            assert_eq!(rig.status(&own, "GET", &path, "").await, 400, "{name}");
        }
        // A project that can be no label has no instances.
        for project in ["", "STF", "a.b", ".."] {
            let odd = rig.token(project, Verb::Manage).to_text();
            assert_eq!(
                rig.status(&odd, "POST", PROVISION, BODY).await,
                400,
                "{project}"
            );
        }
        assert_eq!(rig.interface.instances.count(), 0);
    });
}

#[test]
fn tokens_are_looked_into_narrowed_and_revoked() {
    run(async |rig| {
        let token = rig.token("stf008", Verb::Manage);
        let own = token.to_text();
        let (status, said) = rig
            .ask(&own, "GET", "/olcf/v1/token/ctls/introspect", "")
            .await;
        assert_eq!((status, &said["token"]["project"]), (200, &"stf008".into()));
        assert_eq!(said["token"]["username"], "stf008_auser");
        // For one instance alone.
        let narrow = access::Limits {
            topics: Some(vec!["run42".parse().unwrap()]),
            ..access::Limits::default()
        };
        let narrow = token
            .restrict(&narrow, Seed([7; SEED_BYTES]))
            .unwrap()
            .to_text();
        assert_eq!(
            rig.status(&narrow, "POST", PROVISION, r#"{"name": "run43"}"#)
                .await,
            403
        );
        assert_eq!(rig.status(&narrow, "POST", PROVISION, BODY).await, 202);
        let once = access::Limits {
            once: true,
            ..access::Limits::default()
        };
        let once = token
            .restrict(&once, Seed([8; SEED_BYTES]))
            .unwrap()
            .to_text();
        assert_eq!(rig.status(&once, "GET", RUN42, "").await, 401);
        let over = access::Limits {
            expires: Some(access::UnixTime(1)),
            ..access::Limits::default()
        };
        let over = token
            .restrict(&over, Seed([9; SEED_BYTES]))
            .unwrap()
            .to_text();
        assert_eq!(rig.status(&over, "GET", RUN42, "").await, 401);
        assert_eq!(
            rig.status(&own, "DELETE", "/olcf/v1/token/ctls/revoke", "")
                .await,
            200
        );
        for token in [&own, &narrow] {
            assert_eq!(rig.status(token, "GET", RUN42, "").await, 401);
        }
    });
}

#[test]
fn nothing_that_a_client_presents_is_in_the_log() {
    let is_in_log = || {
        run(async |rig| {
            let own = rig.token("stf008", Verb::Manage).to_text();
            for (method, path, body) in [
                ("POST", PROVISION, BODY),
                ("GET", RUN42, ""),
                ("POST", "/olcf/v1alpha/streaming/rabbitmq/extend/run42", ""),
                ("DELETE", RUN42, ""),
                ("DELETE", "/olcf/v1/token/ctls/revoke", ""),
            ] {
                rig.status(&own, method, path, body).await;
                rig.status("a-secret-of-the-site", method, path, body).await;
            }
            let lines = rig.lines.lock().unwrap();
            assert!(lines.len() > 3, "{lines:?}");
            let secrets = [&own[access::TEXT_PREFIX.len()..], "a-secret-of-the-site"];
            lines
                .iter()
                .any(|line| secrets.iter().any(|secret| line.contains(secret)))
        })
    };
    assert!(!is_in_log());
    assert!(faults::with(Fault::SecretInLog, is_in_log));
}

#[test]
fn what_is_deleted_is_archived_and_its_name_is_free() {
    run(async |rig| {
        let own = rig.token("stf008", Verb::Manage).to_text();
        rig.status(&own, "POST", PROVISION, BODY).await;
        assert_eq!(rig.status(&own, "POST", PROVISION, BODY).await, 409);
        let instance = rig.interface.instances.of_project("stf008").remove(0);
        let (status, said) = rig.ask(&own, "DELETE", RUN42, "").await;
        assert_eq!((status, &said["success"]), (200, &Value::Bool(true)));
        instance.gone(std::time::Duration::from_secs(60)).await;
        assert_eq!(rig.status(&own, "GET", RUN42, "").await, 404);
        assert!(!instance.folder().exists());
        assert_eq!(rig.status(&own, "POST", PROVISION, BODY).await, 202);
    });
}

#[test]
fn the_description_has_every_route_and_no_other() {
    let text = include_str!("openapi.json");
    let described: Value = serde_json::from_str(text).unwrap();
    let mut found = BTreeSet::new();
    for (path, item) in described["paths"].as_object().unwrap() {
        for method in item
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "parameters")
        {
            found.insert((method.to_uppercase(), path.clone()));
        }
    }
    let mut expected = BTreeSet::from([("GET".to_owned(), routes::OPENAPI.to_owned())]);
    for (method, path, operation) in routes::ROUTES {
        let prefix = match operation {
            Operation::Introspect | Operation::Revoke => routes::TOKEN_PREFIXES[1],
            _ => PREFIXES[0],
        };
        expected.insert(((*method).to_owned(), format!("{prefix}/{path}")));
    }
    assert_eq!(found, expected);
}

/// Any request gets an answer that is JSON, and makes no instance without a token.
#[test]
fn any_request_gets_an_answer() {
    run(async |rig| {
        let own = rig.token("stf008", Verb::Manage).to_text();
        let mut requests = Vec::new();
        crate::chance::seeds(1..400, |chance| {
            let mut body = BODY.as_bytes().to_vec();
            for _ in 0..chance.below(8) {
                let at = chance.below(body.len());
                match chance.below(3) {
                    0 => body[at] = chance.byte(),
                    1 => drop(body.remove(at)),
                    _ => body.insert(at, chance.byte()),
                }
            }
            let mut path = [PROVISION, RUN42, "/openapi.json", "/"][chance.below(4)].to_owned();
            for _ in 0..chance.below(3) {
                let at = chance.below(path.len());
                path.insert(at, ['/', '.', '%', 'x', '{'][chance.below(5)]);
            }
            let method = ["GET", "POST", "DELETE", "PUT", ""][chance.below(5)];
            let token = [own.as_str(), "", "Bearer", "thalweg-token-1:"][chance.below(4)];
            requests.push((method, path, token.to_owned(), body));
        });
        for (method, path, token, body) in requests {
            let before = rig.interface.instances.count();
            let request = Request {
                method,
                path: &path,
                authorization: Some(&token),
                peer: [127, 0, 0, 1].into(),
                body: &body,
            };
            let answer = rig.interface.handle(&request).await;
            let said: Value = serde_json::from_str(&answer.body).unwrap();
            assert!(answer.status == 200 || answer.status == 202 || said["code"] == answer.status);
            assert!(token == own || rig.interface.instances.count() <= before);
        }
    });
}
