//! Memory of another process, read where it lies.

use std::io;

/// Fills `into` with what process `pid` has at `address`.
///
/// # Errors
/// What the system says: it may not be allowed (ptrace access is what it
/// takes), the process may be gone, nothing may be there.
pub(crate) fn read(pid: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut done = 0;
    while done < into.len() {
        let local = libc::iovec {
            iov_base: into[done..].as_mut_ptr().cast(),
            iov_len: into.len() - done,
        };
        let from = address.checked_add(done as u64);
        let from = from.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let remote = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(from as usize),
            iov_len: into.len() - done,
        };
        // SAFETY: the local range is `into`'s, which is ours alone; the remote
        // one is checked by the system, and is never looked at by this process.
        let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        match usize::try_from(read) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_nothing_is_an_error() {
        let memory = vec![7u8; 100_000];
        let mut into = vec![0; memory.len()];
        let address = memory.as_ptr().expose_provenance() as u64;
        read(std::process::id(), address, &mut into).unwrap();
        assert_eq!(into, memory);
        assert!(read(std::process::id(), 8, &mut into).is_err());
        assert!(read(std::process::id(), u64::MAX - 5, &mut into).is_err());
        assert!(read(u32::MAX, address, &mut into).is_err());
    }
}
