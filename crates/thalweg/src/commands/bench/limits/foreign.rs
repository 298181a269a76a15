//! Memory of another process, read where it lies.

use super::super::peer::Cores;
use crate::failure::{About, Code, Failure};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Larger than the caches; each side has as much, touched before.
const BYTES: usize = 256 << 20;
/// What one call reads: a chunk, as the server does.
const PIECE_BYTES: usize = wire::frame::BULK_CHUNK_BYTES;
const SUBJECT: &str = "memory of another process";

/// Is the other process: has memory, says where, and waits for the end of its input.
pub fn hold() -> Result<(), Failure> {
    let memory = vec![7u8; BYTES];
    let address = memory.as_ptr().expose_provenance();
    println!("{address}");
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing).about(SUBJECT)?;
    Ok(())
}

/// Bytes a second from memory of a process on a client's core to memory of
/// one on the server's. `None` where the system forbids it.
pub fn measure(cores: &Cores) -> Result<Option<f64>, Failure> {
    let program = std::env::current_exe().about(SUBJECT)?;
    let mut command = Command::new(program);
    command
        .args(["bench", "raw-memory"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut holder = cores.spawn_client(&mut command, 0).about(SUBJECT)?;
    let mut address = String::new();
    let stdout = holder.stdout.take().expect("its output is piped");
    BufReader::new(stdout)
        .read_line(&mut address)
        .about(SUBJECT)?;
    let address = address.trim().parse::<u64>();
    let address = address
        .map_err(|error| Failure::new(Code::Failure, SUBJECT, format!("its address: {error}")))?;
    let mut into = vec![1u8; BYTES];
    let pid = holder.id();
    let rate = cores
        .on_server(|| {
            let began = Instant::now();
            for (index, piece) in into.chunks_mut(PIECE_BYTES).enumerate() {
                let from = address + (index * PIECE_BYTES) as u64;
                fabric::read_process(pid, from, piece).ok()?;
            }
            Some(BYTES as f64 / began.elapsed().as_secs_f64())
        })
        .about(SUBJECT)?;
    drop(holder.stdin.take());
    holder.wait().about(SUBJECT)?;
    Ok(rate)
}
