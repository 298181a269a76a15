//! Programs that others wrote: where they are, and which package has them.

use crate::failure::{Code, Failure};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where Debian has programs of services, which is not on everybody's PATH.
const BESIDES: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];

/// A program.
pub struct Program {
    /// Its names, the first one found counts.
    pub names: &'static [&'static str],
    /// The package of Debian that has it.
    pub package: &'static str,
}

pub const HAPROXY: Program = Program {
    names: &["haproxy"],
    package: "haproxy",
};
pub const STUNNEL: Program = Program {
    names: &["stunnel4", "stunnel"],
    package: "stunnel4",
};
pub const NGINX: Program = Program {
    names: &["nginx"],
    package: "nginx-light and libnginx-mod-stream",
};

impl Program {
    pub fn find(&self) -> Result<PathBuf, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        self.within(std::env::split_paths(&path).chain(BESIDES.map(PathBuf::from)))
            .ok_or_else(|| {
                let what = format!(
                    "is neither on PATH nor in {}; Debian has it as {}",
                    BESIDES.join(", "),
                    self.package
                );
                Failure::new(Code::Usage, self.names[0], what)
            })
    }

    fn within(&self, directories: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
        let directories: Vec<PathBuf> = directories.collect();
        let mut paths = self
            .names
            .iter()
            .flat_map(|name| directories.iter().map(move |one| one.join(name)));
        paths.find(|path| is_program(path))
    }
}

fn is_program(path: &Path) -> bool {
    let found = std::fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_an_executable_file_of_one_of_the_names() {
        let directory = tempfile::tempdir().unwrap();
        let find = || STUNNEL.within([directory.path().to_owned()].into_iter());
        assert_eq!(find(), None);
        let path = directory.path().join("stunnel");
        std::fs::write(&path, "").unwrap();
        assert_eq!(find(), None, "it cannot be run");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(), Some(path));
    }
}
