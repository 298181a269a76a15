//! Which machine this is.

use std::path::Path;

/// A machine, in one of its boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its node name, as `uname` has it.
    pub name: String,
    /// Identity of the present boot: another one than before means that what
    /// was not synced may be gone.
    pub boot_id: String,
}

impl Host {
    /// This machine.
    pub fn this() -> Self {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let boot_id = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"))
            .map(|text| text.trim().to_owned())
            // Without /proc every start looks like another boot, which is the safe guess.
            .unwrap_or_else(|_| format!("unknown-{:032x}", random_u128()));
        Self { name, boot_id }
    }
}

/// 128 bits that nobody else has.
pub(crate) fn random_u128() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
    u128::from_le_bytes(bytes)
}
