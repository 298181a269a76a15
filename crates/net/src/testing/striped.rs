//! A transport whose links have several connections from the beginning, without a Hello.

use crate::contract::*;
use crate::stripes::StripesFrom;
use std::os::fd::RawFd;

/// Links of `inner`, each of `count` connections. Those of one link are made one behind the other, and accepted so.
pub struct Striped<T> {
    /// TCP or TLS.
    pub inner: T,
    /// Connections of each link.
    pub count: usize,
}

fn bundle(mut links: Vec<Box<dyn Link>>) -> Result<Box<dyn Link>, NetError> {
    let failed = || NetError::System("a transport that cannot have several connections".into());
    let further = links.split_off(1);
    let mut first = links.remove(0);
    let mut link = first.striped(StripesFrom::Beginning).ok_or_else(failed)?;
    for mut other in further {
        let carrier = other.carrier(StripesFrom::Beginning).ok_or_else(failed)?;
        assert!(link.join(carrier), "there is space for it");
    }
    Ok(link)
}

impl<T: Transport> Transport for Striped<T> {
    fn scheme(&self) -> &'static str {
        self.inner.scheme()
    }

    fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        Ok(Box::new(Gathering {
            inner: self.inner.listen(address)?,
            count: self.count,
            links: Vec::new(),
        }))
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        let links = (0..self.count).map(|_| self.inner.connect(address));
        bundle(links.collect::<Result<_, _>>()?)
    }
}

struct Gathering {
    inner: Box<dyn Listener>,
    count: usize,
    links: Vec<Box<dyn Link>>,
}

impl Listener for Gathering {
    fn address(&self) -> String {
        self.inner.address()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Link>>, NetError> {
        while let Some(link) = self.inner.accept()? {
            self.links.push(link);
            if self.links.len() == self.count {
                return bundle(std::mem::take(&mut self.links)).map(Some);
            }
        }
        Ok(None)
    }

    fn readiness(&mut self) -> Readiness<'_> {
        self.inner.readiness()
    }

    fn attach(&mut self, notify: Notify) {
        self.inner.attach(notify);
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }
}
