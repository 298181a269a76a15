//! `thalweg gateway`, and the server that it makes on request: a managed service.

use super::super::amqp::url::{AmqpUrl, Encryption};
use super::super::cpu;
use super::super::tls;
use super::certificate::write_private;
use super::process::{Process, Start, Starter};
use crate::failure::{About, Code, Failure};
use client::url::StreamUrl;
use rustix::process::{Pid, Signal, kill_process_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use workload::{Backend, Url};

const NAME: &str = "api.localhost";
const DOMAIN: &str = "stream.localhost";
const PROJECT: &str = "workload";
const INSTANCE: &str = "run";
const PATH: &str = "/olcf/open/v1alpha/streaming/thalweg/provision_cluster";
/// Memory of the instance: half of it is for events under way.
const RAM_GBS: u64 = 4;
/// How long the gateway may take to end, and its instance with it.
const END: Duration = Duration::from_secs(60);
/// How long an instance that was killed may be there, and how often it is looked.
const KILLED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);
/// How long it may say nothing while it makes an instance; it waits 15 s for that by itself.
const ANSWER: Duration = Duration::from_secs(60);
/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A gateway with one instance.
pub struct Service {
    pub gateway: Process,
    /// By which clients reach it.
    pub url: Url,
    /// The same past the gateway.
    pub inside: Url,
    pub instance: Instance,
}

/// The instance's process, which is the gateway's child. It ends with the gateway; when that has died, with this.
pub struct Instance {
    pub pid: u32,
    /// What its command line has, and no other's.
    folder: PathBuf,
}

impl Instance {
    /// Whether there is still that process under its number.
    fn is_there(&self) -> bool {
        let line = std::fs::read(cpu::directory(self.pid).join("cmdline")).unwrap_or_default();
        let folder = self.folder.as_os_str().as_encoded_bytes();
        line.windows(folder.len()).any(|part| part == folder)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let Some(group) = Pid::from_raw(self.pid as i32).filter(|_| self.is_there()) else {
            return;
        };
        // A group that is gone has ended, which is what was wanted.
        let _ = kill_process_group(group, Signal::KILL);
        // It is not this process's child: nothing else says when it is gone.
        let until = Instant::now() + KILLED;
        while self.is_there() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

/// Starts the gateway, and asks it for a server.
pub fn start(starter: &Starter<'_>, backend: Backend) -> Result<Service, Failure> {
    let program = std::env::current_exe().about("thalweg gateway")?;
    let folder = starter.path("gateway");
    let mut arguments = vec!["gateway".into(), folder.clone().into()];
    let words = [
        "--name",
        NAME,
        "--domain",
        DOMAIN,
        "--listen",
        "127.0.0.1:0",
    ];
    arguments.extend(words.map(Into::into));
    arguments.extend(["--dialled", "127.0.0.1", "--json"].map(Into::into));
    let gateway = starter.start(Start {
        name: "gateway",
        program: &program,
        arguments,
        environment: Vec::new(),
        has_output: true,
    })?;
    let gateway = gateway.ending_within(END);
    let address = starter.until(&gateway, || {
        let output = gateway.output()?;
        let ready = output
            .lines()
            .find_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(ready.and_then(|ready| ready["addresses"][0].as_str()?.parse::<SocketAddr>().ok()))
    })?;
    let token = token(&program, &folder)?;
    // An answer that does not come may be explained by the gateway's end.
    let asked = provision(&folder, address, &token);
    let answer = asked.map_err(|failure| gateway.check().err().unwrap_or(failure))?;
    let instance = starter.until(&gateway, || {
        let mut children = cpu::processes().filter(|one| one.parent == gateway.id());
        Ok(children.next())
    })?;
    let found = |key: &str| {
        answer[key].as_str().ok_or_else(|| {
            let what = format!("its answer has no {key}: the server does not serve yet");
            Failure::new(Code::Failure, &gateway.name, what)
        })
    };
    let write = |key: &str, name: &str| {
        let path = starter.path(name);
        write_private(&path, &format!("{}\n", found(key)?))?;
        Ok(Url(path.display().to_string()))
    };
    let (url, inside) = match backend {
        Backend::Amqp => {
            let name = found("amqpsServerName")?.to_owned();
            of_amqp(
                found("amqpsUrl")?,
                name,
                found("thalwegUrlInside")?,
                &folder,
            )?
        }
        _ => (
            write("thalwegUrl", "url")?,
            write("thalwegUrlInside", "inside")?,
        ),
    };
    Ok(Service {
        url,
        inside,
        instance: Instance {
            pid: instance.pid,
            folder,
        },
        gateway,
    })
}

/// The URL of AMQP by which clients reach the instance, and the same past the gateway.
fn of_amqp(
    outside: &str,
    name: String,
    inside: &str,
    folder: &Path,
) -> Result<(Url, Url), Failure> {
    let failed = |why: String| Failure::new(Code::Failure, "the gateway's answer", why);
    let outside = AmqpUrl::parse(outside).map_err(failed)?;
    let address = StreamUrl::parse(inside).map_err(failed)?.address;
    let place = address
        .split_once('?')
        .map_or(&*address, |(place, _)| place);
    let (_, port) = place.rsplit_once(':').unwrap_or_default();
    let port = port.parse();
    let port = port.map_err(|_| failed(format!("{place} has no port")))?;
    let data = folder
        .join("instances")
        .join(PROJECT)
        .join(INSTANCE)
        .join("data");
    // Native clients have the hash of an instance's certificate.
    let encryption = Some(Encryption {
        authorities: Some(data.join("tls/authority.pem")),
        name: Some(name),
    });
    let with = |port: u16| AmqpUrl {
        port,
        encryption: encryption.clone(),
        ..outside.clone()
    };
    Ok((Url(with(outside.port).to_text()), Url(with(port).to_text())))
}

/// A token to make an instance with.
fn token(program: &Path, folder: &Path) -> Result<String, Failure> {
    const SUBJECT: &str = "a token of the gateway";
    let made = Command::new(program)
        .args(["token", "new", "--directory"])
        .arg(folder)
        .args(["--project", PROJECT, "--can", "manage"])
        .stdin(Stdio::null())
        .output()
        .about(SUBJECT)?;
    if !made.status.success() {
        let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        return Err(Failure::new(Code::Failure, SUBJECT, why));
    }
    Ok(String::from_utf8_lossy(&made.stdout).trim().to_owned())
}

/// Makes the instance, and waits until it serves.
fn provision(folder: &Path, address: SocketAddr, token: &str) -> Result<Value, Failure> {
    const SUBJECT: &str = "the gateway";
    let failed = |why: String| Failure::new(Code::Failure, SUBJECT, why);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let body = json!({
        "kind": "general",
        "name": INSTANCE,
        "resourceSettings": { "cpus": cores.min(64), "ram-gbs": RAM_GBS },
    })
    .to_string();
    let config = tls::config(&folder.join("tls/authority.pem")).map_err(failed)?;
    let name = ServerName::try_from(NAME).expect("it is a name");
    let session =
        ClientConnection::new(config, name).map_err(|error| failed(format!("TLS: {error}")))?;
    let socket = TcpStream::connect_timeout(&address, ANSWER).about(SUBJECT)?;
    socket.set_read_timeout(Some(ANSWER)).about(SUBJECT)?;
    socket.set_write_timeout(Some(ANSWER)).about(SUBJECT)?;
    let mut stream = StreamOwned::new(session, socket);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let request = format!("{head}{body}");
    stream.write_all(request.as_bytes()).about(SUBJECT)?;
    let mut answer = Vec::new();
    let read = (&mut stream)
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer);
    // One that closes without saying so has said all the same what the length of its body says.
    if let Err(error) = read
        && error.kind() != std::io::ErrorKind::UnexpectedEof
    {
        return Err(failed(format!("does not answer: {error}")));
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(&answer) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Err(failed("its answer has no end".to_owned())),
        Err(error) => return Err(failed(format!("its answer is no HTTP: {error}"))),
    };
    let status = response.code.unwrap_or(0);
    let value: Value = serde_json::from_slice(&answer[head..]).unwrap_or_default();
    match status {
        200 => Ok(value),
        other => {
            let why = value["message"].as_str().unwrap_or("it does not say why");
            Err(failed(format!("makes no server: {other}, {why}")))
        }
    }
}
