//! Which hosts a cluster is started on: as Slurm, PBS, a file or the user names them.

use crate::failure::{About, Failure};
use server::cluster::RANKS_MAX;
use std::collections::BTreeSet;
use std::path::Path;

const SLURM: &str = "SLURM_JOB_NODELIST";
const PBS: &str = "PBS_NODEFILE";
/// The most hosts that one list may name.
const HOSTS_MAX: usize = RANKS_MAX as usize;
/// The most bytes of an item of a list, and digits of a number in it.
const ITEM_BYTES_MAX: usize = 1024;
const DIGITS_MAX: usize = 20;
/// The most brackets in a name. Names of hosts have as many digits as a rack, a chassis and a slot need.
const BRACKETS_MAX: usize = 8;

/// The hosts that `--nodes` names, each once, in the order in which it names them.
///
/// # Errors
/// If it names none, or what is no host.
pub fn of(nodes: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, Failure> {
    let given = |name: &str, who: &str| {
        variable(name)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| {
                Failure::usage(nodes, format!("{name} is not set: {who} sets it in a job"))
            })
    };
    match nodes {
        "@slurm" => expand(&given(SLURM, "Slurm")?).map_err(|why| Failure::usage(SLURM, why)),
        "@pbs" => of_file(Path::new(&given(PBS, "PBS")?)),
        _ if nodes.contains('/') || Path::new(nodes).is_file() => of_file(Path::new(nodes)),
        _ => expand(nodes).map_err(|why| Failure::usage("--nodes", why)),
    }
}

/// A host a line; `#` begins a comment.
fn of_file(path: &Path) -> Result<Vec<String>, Failure> {
    let subject = path.display().to_string();
    let text = std::fs::read_to_string(path).about(&subject)?;
    let lines = text.lines().map(|line| {
        let (name, _) = line.split_once('#').unwrap_or((line, ""));
        name.trim().to_owned()
    });
    let hosts = once(lines.filter(|name| !name.is_empty()));
    hosts.map_err(|why| Failure::usage(subject, why))
}

/// A list as Slurm writes it: `n[1-3,07],m2` is n1, n2, n3, n07 and m2. Slurm's own program for that (`scontrol show
/// hostnames`) is not on every host that sees the variable, as in containers.
fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for item in items(list)? {
        let names = names_of(item, HOSTS_MAX - hosts.len())?;
        hosts.extend(names);
    }
    once(hosts.into_iter())
}

/// Of a list, what stands between commas that are in no brackets.
fn items(list: &str) -> Result<Vec<&str>, String> {
    let (mut found, mut begin, mut is_within) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match (byte, is_within) {
            (b'[', false) => is_within = true,
            (b']', true) => is_within = false,
            (b'[' | b']', _) => return Err(format!("{list:?} has brackets that do not match")),
            (b',', false) => {
                found.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if is_within {
        return Err(format!("{list:?} has brackets that do not match"));
    }
    found.push(&list[begin..]);
    let found = found.into_iter().map(str::trim);
    Ok(found.filter(|item| !item.is_empty()).collect())
}

/// The hosts of an item, at most so many. Its brackets match.
fn names_of(item: &str, most: usize) -> Result<Vec<String>, String> {
    if item.len() > ITEM_BYTES_MAX {
        return Err(format!("a name of {} bytes is none of a host", item.len()));
    }
    let (mut names, mut rest) = (vec![String::new()], item);
    for _ in 0..=BRACKETS_MAX {
        let Some((before, (ranges, after))) = rest
            .split_once('[')
            .and_then(|(before, within)| Some((before, within.split_once(']')?)))
        else {
            names.iter_mut().for_each(|name| name.push_str(rest));
            return match names.len() <= most {
                true => Ok(names),
                false => Err(format!("{item:?} makes more than {HOSTS_MAX} hosts")),
            };
        };
        let numbers = numbers_of(ranges, most / names.len())
            .map_err(|why| format!("{item:?}: [{ranges}] {why}"))?;
        let each = names.iter().flat_map(|name| {
            let numbers = numbers.iter();
            numbers.map(move |number| format!("{name}{before}{number}"))
        });
        names = each.collect();
        rest = after;
    }
    Err(format!("{item:?} has more than {BRACKETS_MAX} brackets"))
}

/// What stands in brackets: numbers and ranges of them, of which the first says how many digits all have.
fn numbers_of(ranges: &str, most: usize) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let number = |text: &str| {
        let is_number = (1..=DIGITS_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|_| is_number);
        number.ok_or_else(|| format!("has {text:?}, which is no number"))
    };
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (begin, end, digits) = (number(first)?, number(last)?, first.len());
        if end < begin {
            return Err(format!("goes from {first} down to {last}"));
        }
        let left = (most - found.len()) as u64;
        if end - begin >= left {
            return Err(format!("makes more than {HOSTS_MAX} hosts"));
        }
        found.extend((begin..=end).map(|number| format!("{number:0digits$}")));
    }
    Ok(found)
}

/// Each once, in the order of their first place.
fn once(names: impl Iterator<Item = String>) -> Result<Vec<String>, String> {
    let mut seen = BTreeSet::new();
    let mut hosts = Vec::new();
    for name in names {
        check(&name)?;
        if seen.insert(name.clone()) {
            hosts.push(name);
        }
    }
    match hosts.len() {
        0 => Err("names no host".to_owned()),
        1..=HOSTS_MAX => Ok(hosts),
        count => Err(format!("{count} hosts are more than {HOSTS_MAX}")),
    }
}

/// A name that cannot be taken for an option of ssh, srun or mpiexec, and ends no list of names.
fn check(name: &str) -> Result<(), String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@".contains(&byte);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && name.bytes().all(is_part) {
        true => Ok(()),
        false => Err(format!("{name:?} is no name of a host")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_as_slurm_does() {
        for (list, hosts) in [
            ("n1", vec!["n1"]),
            ("n[1-3,7],m2", vec!["n1", "n2", "n3", "n7", "m2"]),
            ("n[08-11]", vec!["n08", "n09", "n10", "n11"]),
            (
                "r[1-2]n[1-2]-ib",
                vec!["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"],
            ),
            ("a, b,,a", vec!["a", "b"]),
            ("user@login.site.org", vec!["user@login.site.org"]),
            ("n[18446744073709551615]", vec!["n18446744073709551615"]),
        ] {
            assert_eq!(expand(list).unwrap(), hosts, "{list}");
        }
        assert_eq!(expand("n[1-65536]").unwrap().len(), HOSTS_MAX);
    }

    #[test]
    fn what_is_no_list_is_refused_before_it_takes_memory() {
        for (list, why) in [
            ("", "no host"),
            (",,", "no host"),
            ("n[", "do not match"),
            ("n]1[", "do not match"),
            ("n[[1]]", "do not match"),
            ("n[]", "no number"),
            ("n[1-]", "no number"),
            ("n[-3]", "no number"),
            ("n[1-2-3]", "no number"),
            ("n[+1]", "no number"),
            ("n[a-b]", "no number"),
            ("n[3-1]", "down to"),
            ("n[0-18446744073709551615]", "more than"),
            ("n[1-18446744073709551616]", "no number"),
            ("n[1-65537]", "more than"),
            ("n[1-60000],m[1-60000]", "more than"),
            ("n[1-300]x[1-300]", "more than"),
            ("n[1]x[1]x[1]x[1]x[1]x[1]x[1]x[1]x[1]", "brackets"),
            ("-oProxyCommand=x", "no name"),
            ("@slurm", "no name"),
            ("a b", "no name"),
            ("n1;reboot", "no name"),
            ("n\u{e4}1", "no name"),
            ("n1:22", "no name"),
        ] {
            let refused = expand(list).unwrap_err();
            assert!(refused.contains(why), "{list}: {refused}");
        }
        let digits = format!("n[{}1-60000]", "0".repeat(100));
        assert!(expand(&digits).unwrap_err().contains("no number"));
        let long = format!("{}[1-60000]", "n".repeat(2000));
        assert!(expand(&long).unwrap_err().contains("2009 bytes"));
    }

    #[test]
    fn a_file_names_each_host_once_and_variables_lead_to_lists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nodes");
        std::fs::write(&path, "# of today\nn2 # the fast one\n\n n1\nn2\n").unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(of(path, |_| None).unwrap(), ["n2", "n1"]);
        let pbs = |name: &str| (name == PBS).then(|| path.to_owned());
        assert_eq!(of("@pbs", pbs).unwrap(), ["n2", "n1"]);
        let slurm = |name: &str| (name == SLURM).then(|| "n[1-2]".to_owned());
        assert_eq!(of("@slurm", slurm).unwrap(), ["n1", "n2"]);
        let missing = of("@slurm", |_| None).unwrap_err().to_string();
        assert!(
            missing.contains("SLURM_JOB_NODELIST is not set"),
            "{missing}"
        );
        let gone = of("./nowhere", |_| None).unwrap_err().to_string();
        assert!(gone.contains("./nowhere"), "{gone}");
    }
}
