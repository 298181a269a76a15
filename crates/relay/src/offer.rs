//! The side that offers: it listens, and lets one other side in.

use crate::admission::{Admission, Admitted};
use crate::dial::{Destination, read_frame, set_options, write_frame};
use crate::error::RelayError;
use crate::frame::{Frame, Hello, Purpose, Reason, Refusal, Terms, Welcome};
use crate::memory::Memory;
use crate::proof::{Binding, Credential};
use crate::rates::{Rates, lower};
use crate::relay::{Bind, Event, Relay, Shared, Target, bind_all, by_name, listen_at, open};
use crate::session::{STRIPES_MAX, Session, Side};
use crate::strangers::{Stranger, Strangers};
use crate::tls;
use crate::tunnel::{Coming, Targets, Tunnel, ends};
use access::{CODE_BYTES, Code, Rendezvous};
use bytes::BytesMut;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long somebody may take to say who they are.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of nobody known, at once; where one more comes, the oldest is closed.
const STRANGERS_MAX: usize = 64;
/// Before a wrong code is answered.
const WRONG_PAUSE: Duration = Duration::from_secs(1);
/// Between two tries to wait at a meeting place: it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);
/// How long a connection waits at a meeting place, which ends the wait after 20 s itself: one that has gone without a
/// word is found out so.
const WAIT_MAX: Duration = Duration::from_secs(22);
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(500);

/// What is offered, and how.
#[derive(Debug, Clone)]
pub struct OfferOptions {
    /// What the other side may open.
    pub targets: Vec<Target>,
    /// Where its targets are opened here.
    pub binds: Vec<Bind>,
    /// Whether those may be addresses that other hosts reach, though nothing is encrypted there.
    pub insecure_listen: bool,
    /// How it comes in.
    pub way: Way,
    /// The name in the certificate that is made.
    pub name: String,
    /// The most that passes each way, bytes a second.
    pub rate: Option<u64>,
    /// Connections at once, at most.
    pub stripes: u8,
    /// How long it lasts.
    pub lasts: Duration,
    /// Files with a certificate and those that signed it, and with its key; without them one is made.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// How the other side comes in.
#[derive(Debug, Clone)]
pub enum Way {
    /// By a listener at this address.
    Listens(String),
    /// By a gateway that both sides dial.
    Meets(Destination),
}

/// An offer that stands.
pub struct Offer {
    /// What the other side needs, once.
    pub code: Code,
    /// Where it listens, if it does.
    pub address: Option<SocketAddr>,
    /// It runs.
    pub relay: Relay,
}

impl Offer {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`RelayError::Usage`] and [`RelayError::System`].
    pub fn start(options: OfferOptions) -> Result<Self, RelayError> {
        if options.targets.is_empty() && options.binds.is_empty() {
            let why = "there is nothing to offer: name a target, as amqp=10.1.1.100:5672, or an address for one of the \
                       other side (--bind NAME=ADDR)";
            return Err(RelayError::Usage(why.to_owned()));
        }
        let certificate = options.certificate.as_ref();
        let files = certificate.map(|(chain, key)| (chain.as_path(), key.as_path()));
        let acceptor = TlsAcceptor::from(tls::offering(files, &options.name)?);
        let code = random_code()?;
        let targets = by_name(&options.targets)?;
        let (relay, shared) = Relay::new()?;
        let entrance = relay.block_on(Entrance::open(&options.way, &code))?;
        let listeners = relay.block_on(bind_all(&options.binds, options.insecure_listen))?;
        let address = entrance.address()?;
        let now = Instant::now();
        let admission = Admission::new(code.clone(), now, now + options.lasts);
        let offering = Arc::new(Offering {
            admission: Mutex::new(admission),
            binds: Mutex::new(Some(listeners)),
            targets,
            rate: options.rate,
            stripes: options.stripes,
            shared,
        });
        let guests = Guests::Alone(offering.clone());
        let reception = Arc::new(Reception { acceptor, guests });
        relay.run(async move {
            tokio::select! {
                ended = offering.run() => ended,
                () = reception.receive(entrance) => Ok(()),
            }
        });
        Ok(Self {
            code,
            address,
            relay,
        })
    }
}

/// Tells why somebody may not come in, who may be gone.
async fn refuse(stream: &mut TlsStream<TcpStream>, refusal: Refusal) {
    if refusal == Refusal::Wrong {
        sleep(WRONG_PAUSE).await;
    }
    let frame = Frame::Refused(refusal);
    // Who is refused may be gone.
    let _ = timeout(GREETING_TIMEOUT, write_frame(stream, &frame)).await;
}

/// A new one-time code.
///
/// # Errors
/// [`RelayError::System`], if the kernel gives no random bytes.
pub fn random_code() -> Result<Code, RelayError> {
    Ok(Code::new(random::<CODE_BYTES>()?))
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], RelayError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| RelayError::System(format!("random bytes: {error}")))?;
    Ok(bytes)
}

type Listeners = Vec<(Option<String>, TcpListener)>;

/// Where the other side comes in.
enum Entrance {
    Listener(TcpListener),
    /// A place where both meet, and a connection that waits there already.
    Meeting(Destination, Rendezvous, TcpStream),
}

impl Entrance {
    async fn open(way: &Way, code: &Code) -> Result<Self, RelayError> {
        match way {
            Way::Listens(address) => listen_at(address).await.map(Self::Listener),
            Way::Meets(place) => {
                let rendezvous = code.rendezvous();
                let first = place.wait(rendezvous).await?;
                Ok(Self::Meeting(place.clone(), rendezvous, first))
            }
        }
    }

    fn address(&self) -> Result<Option<SocketAddr>, RelayError> {
        match self {
            Self::Listener(listener) => {
                let address = listener.local_addr();
                let system = |error| RelayError::System(format!("listening: {error}"));
                address.map(Some).map_err(system)
            }
            Self::Meeting(..) => Ok(None),
        }
    }
}

/// One offer, wherever its other side comes in.
pub(crate) struct Offering {
    /// Held for a moment by who lets somebody in.
    pub admission: Mutex<Admission>,
    /// Listeners of `--bind`, until the other side has joined.
    pub binds: Mutex<Option<Listeners>>,
    pub targets: Targets,
    /// The most that passes each way, bytes a second.
    pub rate: Option<u64>,
    /// Connections at once, at most.
    pub stripes: u8,
    pub shared: Arc<Shared>,
}

/// Whom those who come in may mean.
pub(crate) enum Guests {
    /// The only offer that there is.
    Alone(Arc<Offering>),
    /// Whichever of several has their code or session.
    Several(Arc<Offers>),
}

/// The offers of one listener. Locked for a look.
#[derive(Default)]
pub(crate) struct Offers(pub Mutex<Vec<Arc<Offering>>>);

/// A listener, and the offers behind it.
pub(crate) struct Reception {
    pub acceptor: TlsAcceptor,
    pub guests: Guests,
}

impl Guests {
    /// Tells who offers, if that is one.
    fn note(&self, text: String) {
        if let Self::Alone(offering) = self {
            offering.shared.events.send(Event::Note(text));
        }
    }

    fn meant(&self, binding: &Binding, hello: &Hello) -> Option<Arc<Offering>> {
        match self {
            Self::Alone(offering) => Some(offering.clone()),
            Self::Several(offers) => {
                let offers = offers.0.lock().expect("no holder panics");
                let is_meant = |one: &&Arc<Offering>| {
                    let admission = one.admission.lock().expect("no holder panics");
                    admission.is_meant(binding, hello)
                };
                offers.iter().find(is_meant).cloned()
            }
        }
    }
}

impl Reception {
    async fn receive(self: Arc<Self>, entrance: Entrance) {
        match entrance {
            Entrance::Listener(listener) => self.run(listener).await,
            Entrance::Meeting(place, rendezvous, first) => {
                let strangers = Strangers::new(STRANGERS_MAX);
                let first = self
                    .clone()
                    .meet(&place, rendezvous, &strangers, Some(first));
                let second = self.clone().meet(&place, rendezvous, &strangers, None);
                tokio::join!(first, second);
            }
        }
    }

    /// Waits at a meeting place again and again, and lets in who comes. Two do, so that one waits while the other is met.
    async fn meet(
        self: Arc<Self>,
        place: &Destination,
        rendezvous: Rendezvous,
        strangers: &Arc<Strangers>,
        mut first: Option<TcpStream>,
    ) {
        let mut pause = PAUSE_FIRST;
        loop {
            // Who comes here is asked for: as many as may be have their time.
            while strangers.count() >= STRANGERS_MAX {
                sleep(PAUSE_FIRST).await;
            }
            let began = Instant::now();
            let waits = match first.take() {
                Some(first) => Ok(first),
                None => place.wait(rendezvous).await,
            };
            match waits {
                Ok(socket) => {
                    // The place drops who has waited for long, so that no way in between forgets the connection.
                    if matches!(timeout(WAIT_MAX, socket.peek(&mut [0])).await, Ok(Ok(1))) {
                        pause = PAUSE_FIRST;
                        let from = place.to_string();
                        let stranger = strangers.enter();
                        drop(tokio::spawn(self.clone().serve(socket, from, stranger)));
                        continue;
                    }
                }
                Err(error) => self.guests.note(error.to_string()),
            }
            if began.elapsed() > PAUSE_LAST {
                pause = PAUSE_FIRST;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    /// Lets in who comes, for as long as it is polled.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        let strangers = Strangers::new(STRANGERS_MAX);
        loop {
            match listener.accept().await {
                Ok((socket, from)) => {
                    let (from, stranger) = (from.to_string(), strangers.enter());
                    drop(tokio::spawn(self.clone().serve(socket, from, stranger)));
                }
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn serve(self: Arc<Self>, socket: TcpStream, from: String, mut stranger: Stranger) {
        set_options(&socket);
        let greeted = tokio::select! {
            greeted = timeout(GREETING_TIMEOUT, self.greeting(socket)) => greeted,
            () = stranger.evicted() => return,
        };
        let Ok(Ok((mut stream, binding, hello, rest))) = greeted else {
            return;
        };
        let meant = self.guests.meant(&binding, &hello);
        let answer = match &meant {
            Some(offering) => offering.admit(&binding, &hello, &from),
            None => Err(match hello.purpose {
                Purpose::Join => Refusal::Wrong,
                Purpose::Attach => Refusal::Unknown,
            }),
        };
        let (welcome, coming) = match answer {
            Ok(admitted) => admitted,
            Err(refusal) => {
                if refusal == Refusal::Wrong
                    && let Some(offering) = &meant
                {
                    let note = Event::Note(format!("{from} came with a wrong code"));
                    offering.shared.events.send(note);
                }
                tokio::select! {
                    () = refuse(&mut stream, refusal) => {}
                    () = stranger.evicted() => {}
                }
                return;
            }
        };
        drop(stranger);
        let at = ends(stream.get_ref().0);
        let said = timeout(
            GREETING_TIMEOUT,
            write_frame(&mut stream, &Frame::Welcome(welcome)),
        )
        .await;
        if let Ok(Ok(())) = said
            && let Err(RelayError::Protocol(why)) = coming.carry(stream, rest, at).await
            && let Some(offering) = &meant
        {
            let note = Event::Note(format!("{from}: {why}"));
            offering.shared.events.send(note);
        }
    }

    async fn greeting(
        &self,
        socket: TcpStream,
    ) -> Result<(TlsStream<TcpStream>, Binding, Hello, BytesMut), RelayError> {
        let lost = |error: std::io::Error| RelayError::Protocol(error.to_string());
        let mut stream = self.acceptor.accept(socket).await.map_err(lost)?;
        let binding = tls::binding(stream.get_ref().1)?;
        match read_frame(&mut stream).await.map_err(lost)? {
            (Frame::Hello(hello), rest) => Ok((stream, binding, hello, rest)),
            _ => Err(RelayError::Protocol(
                "it begins without a greeting".to_owned(),
            )),
        }
    }
}

impl Offering {
    /// Looks after it until it is over.
    pub(crate) async fn run(self: Arc<Self>) -> Result<(), RelayError> {
        let mut ticks = interval(TICK);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if let Some(tunnel) = self.shared.tunnel.get() {
                        tunnel.tick();
                    }
                    let why = self.admission.lock().expect("no holder panics").tick(Instant::now());
                    match (why, self.shared.tunnel.get()) {
                        (None, _) => {}
                        (Some(_), Some(tunnel)) => {
                            tunnel.leave(Reason::Over).await;
                            return Ok(());
                        }
                        (Some(why), None) => return Err(RelayError::Refused(why)),
                    }
                },
                () = self.shared.stop.notified() => {
                    // A connection that was admitted before has its place in the tunnel, which says the end to it.
                    self.admission.lock().expect("no holder panics").end();
                    if let Some(tunnel) = self.shared.tunnel.get() {
                        tunnel.leave(Reason::Leaves).await;
                    }
                    return Ok(());
                },
                reason = self.over() => return match reason {
                    Reason::Leaves | Reason::Over => Ok(()),
                    other => Err(RelayError::Over(other)),
                },
            }
        }
    }

    async fn over(&self) -> Reason {
        loop {
            match self.shared.tunnel.get() {
                Some(tunnel) => return tunnel.over().await,
                // The loop looks again at each tick.
                None => std::future::pending().await,
            }
        }
    }

    fn admit(
        &self,
        binding: &Binding,
        hello: &Hello,
        from: &str,
    ) -> Result<(Welcome, Coming), Refusal> {
        let now = Instant::now();
        let mut admission = self.admission.lock().expect("no holder panics");
        let lasts = admission.ends().saturating_duration_since(now);
        let most = self.stripes.clamp(1, STRIPES_MAX as u8);
        let rate = |asked: u64| lower(self.rate, (asked > 0).then_some(asked)).unwrap_or_default();
        let terms = Terms {
            rate_up: rate(hello.terms.rate_up),
            rate_down: rate(hello.terms.rate_down),
            stripes: hello.terms.stripes.clamp(1, most),
        };
        let welcome = |admitted: &Admitted, secret| Welcome {
            session: admitted.credential.session,
            proof: admitted.proof,
            secret,
            terms,
            lasts_seconds: u32::try_from(lasts.as_secs()).unwrap_or(u32::MAX).max(1),
            targets: self.targets.keys().cloned().collect(),
        };
        match hello.purpose {
            Purpose::Join => {
                // Without chance there are no secrets, and nobody comes in.
                let credential =
                    random::<16>().and_then(|session| Ok(Credential::new(session, random()?)));
                let credential = credential.map_err(|_| Refusal::Over)?;
                let admitted = admission.join(now, binding, &hello.proof, credential)?;
                let rates = Rates {
                    sends: (terms.rate_down > 0).then_some(terms.rate_down),
                    takes: (terms.rate_up > 0).then_some(terms.rate_up),
                };
                let session = Session::new(Side::Offered, rates, &Memory::of_process(), now);
                let tunnel = Tunnel::new(session, self.targets.clone(), self.shared.events.clone());
                let coming = tunnel.coming();
                // One code lets one in, so that this is the first time.
                let _ = self.shared.tunnel.set(tunnel.clone());
                self.shared.events.send(Event::Joined {
                    peer: from.to_owned(),
                    terms,
                    lasts,
                });
                let listeners = self.binds.lock().expect("no holder panics").take();
                open(
                    &tunnel,
                    listeners.unwrap_or_default(),
                    &hello.targets,
                    &self.shared.events,
                );
                Ok((welcome(&admitted, admitted.credential.secret()), coming))
            }
            Purpose::Attach => {
                let admitted = admission.attach(now, binding, hello.session, &hello.proof)?;
                let tunnel = self.shared.tunnel.get().ok_or(Refusal::Unknown)?;
                Ok((welcome(&admitted, [0; 32]), tunnel.coming()))
            }
        }
    }
}
