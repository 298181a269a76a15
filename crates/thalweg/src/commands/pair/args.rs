//! The arguments of `thalweg pair`.

use crate::cli::Client;
use crate::commands::token::length;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum PairCommand {
    /// Let one service, or another site, have a certificate: print the code that it joins with
    ///
    /// Takes who may administer the server, which listens at a tls:// address. The code is good for 10 minutes and for who
    /// comes first. The holder of the certificate is a member of the project; rules of the server may grant more or less
    /// to cert:PROJECT/NAME.
    Offer(OfferArgs),
    /// Get a certificate by the code of an offer, and write it to a file
    ///
    /// Makes a key, which never leaves this host, and dials out, through the proxy of HTTPS_PROXY where there is one. The code
    /// proves both sides to each other: who sits in between is refused. Programs take the file as their credential
    /// (THALWEG_CREDENTIAL), and renew the certificate by themselves at two thirds of its life.
    Join(JoinArgs),
    /// Renew the certificate of a file now, for where no program runs that does
    Renew(RenewArgs),
    /// Say whose certificate a file has, until when, and by which id it is revoked
    Show(ShowArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "`thalweg token revoke` takes a certificate back, by its file or the id of its key; connections end within 5 s."
)]
pub struct OfferArgs {
    /// The project whose member the holder is
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
    /// The name of the holder in it, as in beamline-7
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// How long the certificate is good each time, as in 90m, 24h or 7d
    #[arg(long = "for", value_name = "TIME", default_value = "24h", value_parser = length)]
    pub lasts: Duration,
    #[command(flatten)]
    pub client: Client,
}

#[derive(Debug, Args)]
pub struct JoinArgs {
    /// What the offer printed; `-` reads it from standard input
    #[arg(value_name = "CODE@HOST[:PORT]")]
    pub code: String,
    /// The file for the certificate and its key, for its owner alone
    #[arg(long, value_name = "FILE", default_value = "thalweg.credential")]
    pub output: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    pub replace: bool,
    /// A file with the authorities (PEM) that the server's certificate is to be of, besides, for who has one of its site
    #[arg(
        long,
        value_name = "FILE",
        env = "THALWEG_TLS_CA",
        hide_env_values = true
    )]
    pub tls_ca: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The file of a certificate.
#[derive(Debug, Args)]
pub struct PairedFile {
    /// The file, as `thalweg pair join` wrote it
    #[arg(
        value_name = "FILE",
        default_value = "thalweg.credential",
        env = "THALWEG_CREDENTIAL",
        hide_env_values = true
    )]
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct RenewArgs {
    #[command(flatten)]
    pub paired: PairedFile,
    /// Do nothing before two thirds of its life are over
    #[arg(long)]
    pub if_due: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub paired: PairedFile,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
