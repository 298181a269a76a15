//! The raw stream: one TCP connection over loopback, 1 MB writes, two
//! processes. What the event path is compared with.

use super::peer::Cores;
use crate::failure::{About, Code, Failure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

const WRITE_BYTES: usize = 1 << 20;
const SUBJECT: &str = "the raw stream";

/// The other end: tells its port, reads to the end, answers with one byte.
pub fn receive() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").about(SUBJECT)?;
    println!("{}", listener.local_addr().about(SUBJECT)?);
    let (mut stream, _) = listener.accept().about(SUBJECT)?;
    let mut buffer = vec![0; WRITE_BYTES];
    while stream.read(&mut buffer).about(SUBJECT)? > 0 {}
    stream.write_all(&[1]).about(SUBJECT)
}

/// Bytes a second of the stream, measured over about `bytes`, from the first
/// write to the receiver's answer.
pub fn measure(cores: &Cores, bytes: u64) -> Result<f64, Failure> {
    let program = std::env::current_exe().about(SUBJECT)?;
    let mut command = Command::new(program);
    command
        .args(["bench", "raw-receiver"])
        .stdout(Stdio::piped());
    let mut receiver = cores.spawn_server(&mut command).about(SUBJECT)?;
    let mut address = String::new();
    let stdout = receiver.stdout.take().expect("its output is piped");
    BufReader::new(stdout)
        .read_line(&mut address)
        .about(SUBJECT)?;
    let mut stream = TcpStream::connect(address.trim()).about(SUBJECT)?;
    stream.set_nodelay(true).about(SUBJECT)?;
    let buffer = vec![7; WRITE_BYTES];
    let writes = bytes.div_ceil(WRITE_BYTES as u64);
    let began = Instant::now();
    for _ in 0..writes {
        stream.write_all(&buffer).about(SUBJECT)?;
    }
    stream.shutdown(std::net::Shutdown::Write).about(SUBJECT)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).about(SUBJECT)?;
    let elapsed = began.elapsed().as_secs_f64();
    match receiver.wait().about(SUBJECT)?.success() {
        true => Ok((writes * WRITE_BYTES as u64) as f64 / elapsed),
        false => Err(Failure::new(Code::Failure, SUBJECT, "its receiver failed")),
    }
}
