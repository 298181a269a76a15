//! Where a client may come from.

use core::net::IpAddr;
use std::fmt;
use std::str::FromStr;
use wire::codec::{Codec, DecodeError, Reader, Write};

/// Addresses that have their first bits in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address is one of it. One of IPv4 that is written as IPv6 is what it is.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = u32::from(own) ^ u32::from(other);
                differing.leading_zeros() >= self.bits.into()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = u128::from(own) ^ u128::from(other);
                differing.leading_zeros() >= self.bits.into()
            }
            _ => false,
        }
    }

    fn of(address: IpAddr, bits: u8) -> Option<Self> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Self { address, bits })
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no network, as 10.1.0.0/16 or fd00::/8 is");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| refuse())?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Self::of(address, bits).ok_or_else(refuse)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Codec for Network {
    fn encode(&self, out: &mut Vec<u8>) {
        match self.address {
            IpAddr::V4(address) => {
                out.put_u8(4);
                out.put(&address.octets());
            }
            IpAddr::V6(address) => {
                out.put_u8(6);
                out.put(&address.octets());
            }
        }
        out.put_u8(self.bits);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let address = match from.u8()? {
            4 => {
                let octets: [u8; 4] = from.bytes(4)?.try_into().expect("4 were asked for");
                IpAddr::from(octets)
            }
            6 => {
                let octets: [u8; 16] = from.bytes(16)?.try_into().expect("16 were asked for");
                IpAddr::from(octets)
            }
            other => return Err(from.refuse("family", other.into())),
        };
        let bits = from.u8()?;
        Self::of(address, bits).ok_or_else(|| from.refuse("bits", bits.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_share_its_bits() {
        let has = |network: &str, address: &str| {
            let network: Network = network.parse().unwrap();
            network.has(address.parse().unwrap())
        };
        assert!(has("10.1.0.0/16", "10.1.255.3") && !has("10.1.0.0/16", "10.2.0.0"));
        assert!(has("10.1.0.0/16", "::ffff:10.1.2.3"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.4"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        for wrong in [
            "",
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0/8",
            "a/8",
            "10.0.0.0/-1",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
