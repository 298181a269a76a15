//! SIGINT and SIGTERM: the first asks for a clean end, the second ends.

use crate::failure::{About, Failure};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `asked` once, on another thread, when the user wants an end. A
/// second signal ends the process at once, with the code that shells expect.
pub fn on_interrupt(asked: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).about("signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut asked = Some(asked);
            for signal in signals.forever() {
                match asked.take() {
                    Some(asked) => asked(),
                    None => std::process::exit(128 + signal),
                }
            }
        })
        .about("signals")?;
    Ok(())
}
