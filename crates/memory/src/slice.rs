//! How long a thread keeps a processor that others want.

use std::io;
use std::time::Duration;

/// The system's `struct sched_attr`, as of Linux 5.3.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    clamp_min: u32,
    clamp_max: u32,
}

const ATTRIBUTES_BYTES: u32 = std::mem::size_of::<Attributes>() as u32;

impl Attributes {
    /// Those of the calling thread.
    fn own() -> io::Result<Self> {
        let mut own = Self::default();
        // SAFETY: the system writes at most ATTRIBUTES_BYTES to `own`, whose
        // fields are numbers.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_getattr,
                0,
                std::ptr::from_mut(&mut own),
                ATTRIBUTES_BYTES,
                0,
            )
        };
        match result {
            0 => Ok(own),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn is_shared_fairly(&self) -> bool {
        self.policy == libc::SCHED_OTHER as u32 || self.policy == libc::SCHED_BATCH as u32
    }
}

/// Asks the system to take the processor from the calling thread after `slice`
/// where others want it: from 0.1 to 100 ms, what is beyond is cut to that. A thread
/// with a short one is given the processor sooner when it has something to do, and
/// no less of it in all. Threads that it starts have the same.
///
/// A thread that does not share the processor fairly, as one with a real-time
/// priority, keeps what it has. Linux before 6.12 takes no notice.
///
/// # Errors
/// Whatever the system says.
pub fn set_time_slice(slice: Duration) -> io::Result<()> {
    let mut own = Attributes::own()?;
    if !own.is_shared_fairly() {
        return Ok(());
    }
    own.size = ATTRIBUTES_BYTES;
    own.runtime_ns = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the system reads `own`, which says how long it is.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&own), 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread's; `None` if the system does not say, as Linux before 6.12.
    fn time_slice() -> Option<Duration> {
        let own = Attributes::own().unwrap();
        let is_told = own.is_shared_fairly() && own.runtime_ns > 0;
        is_told.then(|| Duration::from_nanos(own.runtime_ns))
    }

    #[test]
    fn a_thread_has_the_slice_that_it_asked_for() {
        let before = time_slice();
        let slice = Duration::from_micros(300);
        let own = std::thread::spawn(move || {
            set_time_slice(slice).unwrap();
            time_slice()
        });
        // Where the system says what it has.
        assert_eq!(own.join().unwrap(), before.map(|_| slice));
        assert_eq!(time_slice(), before);
    }
}
