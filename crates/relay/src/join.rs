//! The side that joins: it dials, and dials again.

use crate::dial::{Destination, Dialled, greet};
use crate::error::RelayError;
use crate::frame::{Hello, Purpose, Reason, Refusal, Terms};
use crate::memory::Memory;
use crate::proof::{Claim, Credential, prove, verify};
use crate::rates::Rates;
use crate::relay::{Bind, Event, Relay, Shared, Target, bind_all, by_name, listen_at, open};
use crate::session::{SILENT_MAX, STRIPES_MAX, Session, Side};
use crate::tls;
use crate::tunnel::{Coming, Tunnel, ends};
use access::Code;
use bytes::BytesMut;
use rustls::ClientConfig;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::time::{interval, sleep, sleep_until};

/// Between two tries to come again: it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(500);
/// Where targets of the other side are opened if nothing is said.
const ANYWHERE: &str = "127.0.0.1:0";

/// What is joined, and how.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// What the other side has printed.
    pub code: Code,
    /// Where it is, or where it waits for who joins.
    pub place: Destination,
    /// What it may open here.
    pub targets: Vec<Target>,
    /// Where its targets are opened here; without any, each at a free port of loopback.
    pub binds: Vec<Bind>,
    /// Whether those may be addresses that other hosts reach, though nothing is encrypted there.
    pub insecure_listen: bool,
    /// The most that passes each way, bytes a second.
    pub rate: Option<u64>,
    /// Connections at once, at most; `None` is as many as the offer has.
    pub stripes: Option<u8>,
    /// A file of authorities that its certificate has to be of, besides.
    pub authorities: Option<PathBuf>,
}

/// Joins an offer.
///
/// # Errors
/// [`RelayError`], if it can't be reached or does not let this one in.
pub fn join(options: JoinOptions) -> Result<Relay, RelayError> {
    let (relay, shared) = Relay::new()?;
    let begun = relay.block_on(async {
        let binds = bind_all(&options.binds, options.insecure_listen).await?;
        begin(options, Listeners::Named(binds), shared).await
    });
    let runs = begun?;
    relay.run(runs);
    Ok(relay)
}

/// Joins an offer on the threads of the runtime that this is called in. Each of the listeners leads to the next
/// target, in the order of their names, and again from the first one; `binds` is not looked at.
///
/// # Errors
/// As [`join`].
pub async fn join_in_turn(
    options: JoinOptions,
    listeners: Vec<TcpListener>,
) -> Result<Relay, RelayError> {
    let (relay, shared) = Relay::lent();
    let runs = begin(options, Listeners::InTurn(listeners), shared).await?;
    relay.run(runs);
    Ok(relay)
}

/// Listeners here, and where they lead.
enum Listeners {
    /// To the target of that name; `None` is the only one.
    Named(Vec<(Option<String>, TcpListener)>),
    /// To one target after the other.
    InTurn(Vec<TcpListener>),
}

impl Listeners {
    /// With a name each, once the targets are known. What is not bound yet is bound before anything begins.
    async fn to(
        self,
        targets: &[String],
    ) -> Result<Vec<(Option<String>, TcpListener)>, RelayError> {
        match self {
            Self::Named(mut listeners) => {
                for name in targets {
                    let is_bound = |(bound, _): &(Option<String>, _)| {
                        bound.as_ref().is_none_or(|bound| bound == name)
                    };
                    if !listeners.iter().any(is_bound) {
                        listeners.push((Some(name.clone()), listen_at(ANYWHERE).await?));
                    }
                }
                Ok(listeners)
            }
            Self::InTurn(_) if targets.is_empty() => {
                let why = "the other side offers no target";
                Err(RelayError::Usage(why.to_owned()))
            }
            Self::InTurn(listeners) => {
                let mut names = targets.to_vec();
                names.sort();
                let in_turn = names.into_iter().cycle().map(Some);
                Ok(in_turn.zip(listeners).collect())
            }
        }
    }
}

/// Joins; what is returned carries the session to its end.
async fn begin(
    options: JoinOptions,
    listeners: Listeners,
    shared: Arc<Shared>,
) -> Result<impl Future<Output = Result<(), RelayError>> + Send + 'static, RelayError> {
    let destination = options.place.clone();
    let rendezvous = options.code.rendezvous();
    let config = tls::joining(options.authorities.as_deref(), rendezvous)?;
    let targets = by_name(&options.targets)?;
    let asked = options.rate.unwrap_or_default();
    let terms = Terms {
        rate_up: asked,
        rate_down: asked,
        stripes: options.stripes.unwrap_or(STRIPES_MAX as u8),
    };
    let hello = Hello {
        purpose: Purpose::Join,
        session: [0; 16],
        proof: [0; 32],
        terms,
        targets: targets.keys().cloned().collect(),
    };
    let mut dialled = destination.dial_first(&config).await?;
    let key = options.code.key();
    let proof = prove(&key, Claim::Joins, &dialled.binding);
    let first = Hello {
        proof,
        ..hello.clone()
    };
    let (welcome, rest) = greet(&mut dialled, first).await?;
    if !verify(&key, Claim::Offers, &dialled.binding, &welcome.proof) {
        return Err(RelayError::Impostor);
    }
    let listeners = listeners.to(&welcome.targets).await?;
    let rates = Rates {
        sends: (welcome.terms.rate_up > 0).then_some(welcome.terms.rate_up),
        takes: (welcome.terms.rate_down > 0).then_some(welcome.terms.rate_down),
    };
    let now = Instant::now();
    let lasts = Duration::from_secs(u64::from(welcome.lasts_seconds));
    let peer = destination.authority();
    shared.events.send(Event::Joined {
        peer,
        terms: welcome.terms,
        lasts,
    });
    let joined = Joined {
        destination,
        config,
        credential: Credential::new(welcome.session, welcome.secret),
        hello,
        stripes: welcome.terms.stripes.clamp(1, STRIPES_MAX as u8),
        ends: now + lasts,
        shared,
    };
    Ok(async move {
        let session = Session::new(Side::Joined, rates, &Memory::of_process(), now);
        let tunnel = Tunnel::new(session, targets, joined.shared.events.clone());
        let _ = joined.shared.tunnel.set(tunnel.clone());
        open(&tunnel, listeners, &welcome.targets, &joined.shared.events);
        joined.run(tunnel, (dialled, rest)).await
    })
}

struct Joined {
    destination: Destination,
    config: Arc<ClientConfig>,
    credential: Credential,
    /// What it said first, for when it comes again.
    hello: Hello,
    stripes: u8,
    ends: Instant,
    shared: Arc<Shared>,
}

impl Joined {
    async fn run(self, tunnel: Arc<Tunnel>, first: (Dialled, BytesMut)) -> Result<(), RelayError> {
        let this = Arc::new(self);
        let mut first = Some((first, tunnel.coming()));
        for _ in 0..this.stripes {
            tokio::spawn(this.clone().keep(tunnel.clone(), first.take()));
        }
        let mut ticks = interval(TICK);
        loop {
            tokio::select! {
                _ = ticks.tick() => tunnel.tick(),
                () = this.shared.stop.notified() => {
                    tunnel.leave(Reason::Leaves).await;
                    return Ok(());
                }
                () = sleep_until(this.ends.into()) => {
                    tunnel.leave(Reason::Over).await;
                    return Ok(());
                }
                reason = tunnel.over() => return match reason {
                    Reason::Over => Ok(()),
                    Reason::Leaves => Ok(()),
                    Reason::Gone => Err(RelayError::Refused(Refusal::Unknown)),
                    other => Err(RelayError::Over(other)),
                },
            }
        }
    }

    /// Keeps one connection, and dials it again for as long as the session lasts.
    async fn keep(
        self: Arc<Self>,
        tunnel: Arc<Tunnel>,
        mut first: Option<((Dialled, BytesMut), Coming)>,
    ) {
        let mut pause = PAUSE_FIRST;
        // Since when nobody but who refuses has answered.
        let mut refused = None;
        loop {
            let come = async {
                match first.take() {
                    Some((first, coming)) => Ok((first, Some(coming))),
                    None => self.come_again().await.map(|again| (again, None)),
                }
            };
            let come = tokio::select! {
                biased;
                come = come => come,
                _ = tunnel.over() => return,
            };
            match come {
                Ok(((dialled, rest), coming)) => {
                    pause = PAUSE_FIRST;
                    refused = None;
                    let at = ends(dialled.stream.get_ref().0);
                    let coming = coming.unwrap_or_else(|| tunnel.coming());
                    match coming.carry(dialled.stream, rest, at).await {
                        Err(RelayError::Over(_)) | Ok(()) => return,
                        Err(RelayError::Protocol(why)) => self.shared.events.send(Event::Note(why)),
                        Err(_) => {}
                    }
                }
                Err(RelayError::Refused(why)) => {
                    // Without a proof: at a meeting place it may be somebody who has seen the rendezvous.
                    let since = *refused.get_or_insert_with(Instant::now);
                    let is_alone = !tunnel.is_connected();
                    match why {
                        Refusal::Unknown if is_alone && since.elapsed() > SILENT_MAX => {
                            return tunnel.end(Reason::Gone);
                        }
                        Refusal::Over if is_alone && since.elapsed() > SILENT_MAX => {
                            return tunnel.end(Reason::Over);
                        }
                        _ => {
                            let note = format!("somebody at {} refuses: {why}", self.destination);
                            self.shared.events.send(Event::Note(note));
                        }
                    }
                }
                Err(RelayError::Impostor) => {
                    self.shared
                        .events
                        .send(Event::Note(RelayError::Impostor.to_string()));
                }
                Err(_) => {}
            }
            tokio::select! {
                () = sleep(pause) => {}
                _ = tunnel.over() => return,
            }
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    async fn come_again(&self) -> Result<(Dialled, BytesMut), RelayError> {
        let mut dialled = self.destination.dial(&self.config).await?;
        let key = self.credential.key();
        let hello = Hello {
            purpose: Purpose::Attach,
            session: self.credential.session,
            proof: prove(&key, Claim::Returns, &dialled.binding),
            ..self.hello.clone()
        };
        let (welcome, rest) = greet(&mut dialled, hello).await?;
        match verify(&key, Claim::Receives, &dialled.binding, &welcome.proof) {
            true => Ok((dialled, rest)),
            false => Err(RelayError::Impostor),
        }
    }
}
