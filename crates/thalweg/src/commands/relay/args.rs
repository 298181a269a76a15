//! The arguments of `thalweg relay`.

use super::place::Place;
use super::scistream::ScistreamArgs;
use crate::commands::token::length;
use crate::connection::Connection;
use clap::{Args, Subcommand};
use pushpull::Endpoint;
use relay::{Bind, Target};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum RelayCommand {
    /// Offer targets of this site to one other site, and print the code that it joins with
    ///
    /// Listens at one port, with TLS, or dials a gateway at which both sides meet (--meet). The code is good for 10 minutes and for who comes first; from
    /// then on both sides know each other for as long as the offer lasts, also after a cut. Targets are
    /// named here, and the other site can reach no other address. Stays in the foreground; Ctrl-C ends it.
    Offer(OfferArgs),
    /// Join what another site offers, and open its targets as addresses of this host
    ///
    /// Dials out, one port, with TLS, through the proxy of HTTPS_PROXY where there is one: to the offer, or to the gateway that
    /// it waits at. Each target that the
    /// other site offers gets an address here, which is printed. After a cut it dials again by itself for as long as the
    /// offer lasts. Stays in the foreground; Ctrl-C ends it.
    Join(JoinArgs),
    /// Take the four calls of SciStream's clients (s2uc), and make tunnels of them
    ///
    /// Takes the place of SciStream's control server (s2cs) and of its proxies at one site: req, hello, update and
    /// release, by gRPC. An inbound session, beside the servers that are reached, is an offer at --inbound; an outbound
    /// one joins it, and its listeners are ports of this host. Places come from outside in this protocol: those that
    /// --allow names are dialled, and no other. Stays in the foreground; Ctrl-C ends it, and all sessions.
    Scistream(ScistreamArgs),
    /// Copy topics of one server to another, under the same offsets, across cuts
    ///
    /// Dials both servers, so that it runs beside either of them. Each topic gets a copy of the same definition,
    /// with the same partitions, which this link alone writes: a mirror. What is not copied yet waits at the
    /// source, as the consumer link/NAME; where the copy is, the link asks after every cut. Runs until Ctrl-C, and goes on
    /// when it is started again under its name.
    Mirror(MirrorArgs),
    /// Make mirrors topics like any other, which their links write no more
    Promote(PromoteArgs),
    /// Take messages of ZeroMQ or nanomsg, and store them in a topic
    ///
    /// A PULL socket that connects, or binds with --bind, to zmq-pull:// or sp-pull://HOST:PORT. A message is an
    /// event: of one part, its data; of several, the first is the metadata if it is a JSON object, and the rest the
    /// data. Where the topic takes no more, nothing is read, and the senders stop. Neither protocol has acknowledgements:
    /// a source that is killed loses what it has read and the server has not stored. Runs until Ctrl-C.
    Source(SourceArgs),
    /// Send the events of a topic as messages of ZeroMQ or nanomsg
    ///
    /// A PUSH socket that connects, or binds with --bind, to zmq-push:// or sp-push://HOST:PORT, and shares events
    /// out among those that are connected. A consumer of its own remembers how far it is: an event is acknowledged
    /// once its last byte was handed to the socket of somebody, and may be sent twice. Runs until Ctrl-C, and goes on
    /// when it is started again.
    Sink(SinkArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "A server is a group file, or an address: tls://host:443, tcp://127.0.0.1:7000, unix:///run/thalweg.sock. \
    Over TLS whom to trust is in the address (?sha256=HEX, ?ca=FILE) or in --tls-ca, and HTTPS_PROXY names a proxy. A credential's file is \
    read again before it expires: who writes another one there renews it."
)]
pub struct MirrorArgs {
    /// Topics of the source, and what their copies are called if that is something else
    #[arg(value_name = "TOPIC[=NAME]", required = true)]
    pub topics: Vec<String>,
    /// The server of the source
    #[arg(long, value_name = "SERVER")]
    pub from: String,
    /// The server of the copies
    #[arg(long, value_name = "SERVER")]
    pub to: String,
    /// A file with a token for the source, as `thalweg token new` makes it; it is to read
    #[arg(long, value_name = "FILE")]
    pub from_credential: Option<PathBuf>,
    /// A file with a token for the copies; it is to write and to manage
    #[arg(long, value_name = "FILE")]
    pub to_credential: Option<PathBuf>,
    /// A file with the authorities (PEM) that are trusted for tls://, where the address says nothing of it
    #[arg(
        long,
        value_name = "FILE",
        env = "THALWEG_TLS_CA",
        hide_env_values = true
    )]
    pub tls_ca: Option<PathBuf>,
    /// The name of the link, the same whenever it is started [default: where --to leads]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The most that is sent, as in 200Mbit, 1Gbit or 50MB (a second)
    #[arg(long, value_name = "RATE", value_parser = super::rate::parse)]
    pub rate: Option<u64>,
    /// How much is fetched and not stored at most, in MiB; large data of one batch that is longer is held alone
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: u32,
    /// Leave out events whose data the source cannot read any more: they are a gap of the copy
    #[arg(long)]
    pub skip_damaged: bool,
    /// How often a line says how far it is, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = crate::connection::seconds)]
    pub every: f64,
    /// Print JSON, one value a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PromoteArgs {
    /// The mirrors
    #[arg(value_name = "TOPIC", required = true)]
    pub topics: Vec<String>,
    #[command(flatten)]
    pub connection: Connection,
    /// Print JSON, one value a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "What the other site offers in its turn (thalweg relay join --expose NAME=ADDR) is \
    opened here by --bind NAME=ADDR."
)]
pub struct OfferArgs {
    /// Targets: a name, and the address that it leads to from here
    #[arg(value_name = "NAME=ADDR")]
    pub targets: Vec<Target>,
    /// Where to listen for the other site
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:443")]
    pub listen: String,
    /// A gateway that both sites reach, where the two relays meet (thalweg gateway --meet): nothing listens here then
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["listen", "name", "tls_cert"])]
    pub meet: Option<Place>,
    /// The name or address of this host as the other site reaches it, with a port if that is another one
    /// [default: this host's name]
    #[arg(long, value_name = "HOST")]
    pub name: Option<String>,
    /// How long the offer lasts, as in 90m, 8h or 2d
    #[arg(long = "for", value_name = "TIME", default_value = "8h", value_parser = length)]
    pub lasts: Duration,
    /// How many connections at once carry it, at most
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub streams: u8,
    /// A certificate of your site and those that signed it, PEM, for who joins with --ca
    /// [default: one that is made for this offer]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub both: BothArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The code is a secret for as long as it has not been used. Other users of this host see the \
    command line: `-` takes it from standard input, and THALWEG_RELAY_CODE does without an argument."
)]
pub struct JoinArgs {
    /// What the offer printed: CODE@HOST, or CODE@HOST:PORT; or - for a line of standard input
    #[arg(
        value_name = "CODE@HOST",
        env = "THALWEG_RELAY_CODE",
        hide_env_values = true
    )]
    pub code: String,
    /// A target of this site that the other one may open: a name, and the address that it leads to from here
    #[arg(long, value_name = "NAME=ADDR")]
    pub expose: Vec<Target>,
    /// How many connections at once carry it [default: as many as the offer allows]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub streams: Option<u8>,
    /// Verify the other site's certificate by the authorities in this file, too, PEM
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    #[command(flatten)]
    pub both: BothArgs,
}

/// What either side may say.
#[derive(Debug, Args)]
pub struct BothArgs {
    /// Where a target of the other site is opened here: NAME=ADDR, or ADDR for its only one
    /// [default: for join, 127.0.0.1 and a port that is free]
    #[arg(long, value_name = "[NAME=]ADDR")]
    pub bind: Vec<Bind>,
    /// Let --bind open targets at addresses that other hosts reach, where nothing is encrypted
    #[arg(long)]
    pub insecure_listen: bool,
    /// The most that passes each way, as in 200Mbit, 1Gbit or 50MB (a second); the lower one of both sides counts
    #[arg(long, value_name = "RATE", value_parser = super::rate::parse)]
    pub rate: Option<u64>,
    /// Print JSON, one value a line: addresses, and every 10 s what has passed
    #[arg(long)]
    pub json: bool,
}

/// What a source and a sink have in common.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// Bind there, in place of connecting
    #[arg(long)]
    pub bind: bool,
    /// Let --bind take an address that other hosts can reach, where nothing is encrypted and nobody is
    /// asked who they are; one of this host every user of it reaches
    #[arg(long, requires = "bind")]
    pub insecure_listen: bool,
    /// Connect to another host, though nothing is encrypted and nobody is asked who they are
    #[arg(long, conflicts_with = "bind")]
    pub insecure_connect: bool,
    /// A file with a token or a certificate for the server [env: THALWEG_CREDENTIAL]
    #[arg(long, value_name = "FILE", env = "THALWEG_CREDENTIAL", hide_env = true)]
    pub credential: Option<PathBuf>,
    /// A file with the authorities (PEM) that are trusted for tls://, where the address says nothing of it
    #[arg(
        long,
        value_name = "FILE",
        env = "THALWEG_TLS_CA",
        hide_env_values = true
    )]
    pub tls_ca: Option<PathBuf>,
    /// How much of messages is held, in MiB, and one message that goes beyond: of a source as much twice, until
    /// it is sent and until it is stored; of a sink, besides, up to 16 MiB of each partition
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub memory: u32,
    /// How often a line says how far it is, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = crate::connection::seconds)]
    pub every: f64,
    /// Print JSON, one value a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Where messages come from: zmq-pull://HOST:PORT or sp-pull://HOST:PORT
    #[arg(value_name = "ADDRESS")]
    pub endpoint: Endpoint,
    /// The topic, which is there
    #[arg(value_name = "TOPIC")]
    pub topic: String,
    /// The server of the topic: a group file, or an address
    #[arg(long, value_name = "SERVER")]
    pub to: String,
    /// The longest message that is taken, in MiB; who sends a longer one is disconnected
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub message: u32,
    /// Take all parts as data, also where the first one is a JSON object
    #[arg(long)]
    pub data_only: bool,
    #[command(flatten)]
    pub end: EndArgs,
}

#[derive(Debug, Args)]
pub struct SinkArgs {
    /// Where messages go: zmq-push://HOST:PORT or sp-push://HOST:PORT
    #[arg(value_name = "ADDRESS")]
    pub endpoint: Endpoint,
    /// The topic
    #[arg(value_name = "TOPIC")]
    pub topic: String,
    /// The server of the topic: a group file, or an address
    #[arg(long, value_name = "SERVER")]
    pub from: String,
    /// The name of its consumer: the same whenever it is started, and of no other sink
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Send the data alone, and no metadata before it
    #[arg(long)]
    pub data_only: bool,
    #[command(flatten)]
    pub end: EndArgs,
}
