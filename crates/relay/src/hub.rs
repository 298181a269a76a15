//! One listener for many offers: the code, or the session's secret, says which one is meant.

use crate::admission::Admission;
use crate::error::RelayError;
use crate::offer::{Guests, Offering, Offers, Reception};
use crate::relay::{Relay, Target, by_name, listen_at};
use crate::tls;
use access::Code;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

/// What one of a hub's offers has.
#[derive(Debug, Clone)]
pub struct HubOffer {
    /// What the other side joins with, once.
    pub code: Code,
    /// For how long that is good.
    pub code_lasts: Duration,
    /// What the other side may open.
    pub targets: Vec<Target>,
    /// The most that passes each way, bytes a second.
    pub rate: Option<u64>,
    /// Connections at once, at most.
    pub stripes: u8,
    /// How long it lasts.
    pub lasts: Duration,
}

/// A listener for many offers, on the threads of the runtime that it was made in.
pub struct Hub {
    address: SocketAddr,
    offers: Arc<Offers>,
    accepts: AbortHandle,
}

impl Hub {
    /// Begins to listen, with the certificate of these PEM files, or one that is made for `name`.
    ///
    /// # Errors
    /// [`RelayError::Usage`] and [`RelayError::System`].
    pub async fn listen(
        address: &str,
        name: &str,
        files: Option<(&Path, &Path)>,
    ) -> Result<Self, RelayError> {
        let acceptor = TlsAcceptor::from(tls::offering(files, name)?);
        let listener = listen_at(address).await?;
        let address = listener
            .local_addr()
            .map_err(|error| RelayError::System(format!("listening: {error}")))?;
        let offers = Arc::<Offers>::default();
        let guests = Guests::Several(offers.clone());
        let reception = Arc::new(Reception { acceptor, guests });
        let accepts = tokio::spawn(reception.run(listener)).abort_handle();
        Ok(Self {
            address,
            offers,
            accepts,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes an offer, which stands until it ends or the relay that is returned is dropped.
    ///
    /// # Errors
    /// [`RelayError::Usage`], if targets cannot be right.
    pub fn offer(&self, offer: HubOffer) -> Result<Relay, RelayError> {
        let targets = by_name(&offer.targets)?;
        let (relay, shared) = Relay::lent();
        let now = Instant::now();
        let (code_ends, ends) = (now + offer.code_lasts, now + offer.lasts);
        let offering = Arc::new(Offering {
            admission: Mutex::new(Admission::with_code_until(offer.code, code_ends, ends)),
            binds: Mutex::new(None),
            targets,
            rate: offer.rate,
            stripes: offer.stripes,
            shared,
        });
        let offers = self.offers.clone();
        let list = || offers.0.lock().expect("no holder panics");
        list().push(offering.clone());
        let offers = self.offers.clone();
        relay.run(async move {
            let ended = offering.clone().run().await;
            let mut list = offers.0.lock().expect("no holder panics");
            list.retain(|one| !Arc::ptr_eq(one, &offering));
            drop(list);
            ended
        });
        Ok(relay)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}
