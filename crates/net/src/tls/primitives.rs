//! Which library has the primitives of TLS: the one place that says so.
//!
//! `ring` is built by a C compiler alone. With the feature `aws-lc-rs` it is AWS-LC, which has post-quantum key agreement
//! and can be had as a FIPS module.

#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs as library;
#[cfg(not(feature = "aws-lc-rs"))]
use rustls::crypto::ring as library;

use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// The primitives of all TLS of this program.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(library::default_provider())
}

/// The library's name.
pub const CRYPTO_PROVIDER: &str = match cfg!(feature = "aws-lc-rs") {
    true => "aws-lc-rs",
    false => "ring",
};

pub(super) fn sha256(bytes: &[u8]) -> Vec<u8> {
    let suite = library::cipher_suite::TLS13_AES_128_GCM_SHA256;
    match suite {
        SupportedCipherSuite::Tls13(suite) => {
            let hash = suite.common.hash_provider.hash(bytes);
            hash.as_ref().to_vec()
        }
        #[allow(
            unreachable_patterns,
            reason = "other versions may be compiled in by others"
        )]
        _ => unreachable!("it is a suite of TLS 1.3"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_one_that_was_asked_for() {
        let is_post_quantum = |provider: &CryptoProvider| {
            let mut groups = provider.kx_groups.iter();
            groups.any(|group| group.name() == rustls::NamedGroup::X25519MLKEM768)
        };
        let is_aws = CRYPTO_PROVIDER == "aws-lc-rs";
        assert_eq!(is_post_quantum(&crypto_provider()), is_aws);
        let hash: String = sha256(b"")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(hash.starts_with("e3b0c44298fc1c14"), "{hash}");
    }
}
