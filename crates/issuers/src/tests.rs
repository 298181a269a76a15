//! Whom an issuer vouches for, and every way in which that is not so.

use crate::faults::{Fault, with};
use crate::*;
use access::{Limits, TokenId, UnixTime, Verb, Verbs};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod command;
mod munge;
mod seeds;

use command::site;

const ISSUER: &str = "https://auth.example.org/";
const AUDIENCE: &str = "thalweg://beamline7";
/// 2026-12-01T08:00:00Z.
const NOW_S: u64 = 1_796_112_000;

fn at(seconds: u64) -> UnixTime {
    UnixTime(seconds * 1_000_000_000)
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An issuer's key.
struct Signer {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
        Self { key, random }
    }

    fn public(&self, id: &str) -> Value {
        let point = self.key.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": id,
               "x": text(&point[1..33]), "y": text(&point[33..])})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.key.sign(&self.random, message.as_bytes()).unwrap();
        format!("{message}.{}", text(signature))
    }
}

fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", text(header.to_string()), text(claims.to_string()))
}

fn header() -> Value {
    json!({"alg": "ES256", "kid": "one", "typ": "JWT"})
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW_S + 3600, "iat": NOW_S,
           "groups": ["users", "stf008"]})
}

/// An object with other values for some keys; null takes one away.
fn but(mut object: Value, others: Value) -> Value {
    for (key, value) in others.as_object().unwrap() {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(key)),
            value => object[key] = value.clone(),
        }
    }
    object
}

fn file() -> Value {
    json!({"issuers": {ISSUER: {
        "audience": AUDIENCE, "algorithms": ["ES256"], "keys": "keys.json",
        "maps": [{"if": {"groups": "stf008"}, "project": "stf008", "may": ["read", "write"],
                  "topics": ["raw-*"]}],
    }}})
}

fn issuers_of(file: &Value, keys: &Value) -> Issuers {
    let mut issuers = Issuers::parse(&file.to_string()).unwrap();
    for issuer in &mut issuers.issuers {
        issuer.keys = Keys::parse(&json!({"keys": keys}).to_string()).unwrap();
    }
    issuers
}

fn soon() -> Instant {
    Instant::now() + TIMEOUT
}

const HERE: Asker<'static> = Asker {
    namespace: "",
    now: at_now(),
    certificates: &[],
};

const fn at_now() -> UnixTime {
    UnixTime(NOW_S * 1_000_000_000)
}

/// An issuer, and what it signs.
struct Ground {
    signer: Signer,
    issuers: Issuers,
}

impl Ground {
    fn new() -> Self {
        let signer = Signer::new();
        let issuers = issuers_of(&file(), &json!([signer.public("one")]));
        Self { signer, issuers }
    }

    fn check(&self, header: &Value, claims: &Value) -> Result<access::Verified, Refusal> {
        self.checked(&self.signer.sign(header, claims))
    }

    fn checked(&self, text: &str) -> Result<access::Verified, Refusal> {
        self.issuers.check(text, HERE, soon())
    }

    fn refused(&self, header: &Value, claims: &Value) -> String {
        self.check(header, claims).unwrap_err().to_string()
    }
}

fn identity(verified: access::Verified) -> access::Identity {
    verified.identity(access::Origin::default(), Default::default())
}

#[test]
fn a_jwt_is_exchanged_for_what_the_map_says_and_no_more() {
    let ground = Ground::new();
    let identity = identity(ground.check(&header(), &claims()).unwrap());
    assert_eq!(identity.subject, access::Subject::Member("stf008".into()));
    let expires = at(NOW_S + 3600 + 30);
    assert_eq!(identity.expires(), Some(expires));
    let credential = identity.credential.as_ref().unwrap();
    assert_eq!(credential.limits().len(), 1);
    assert_eq!(
        credential.limits()[0],
        Limits {
            project: Some("stf008".into()),
            topics: Some(vec!["raw-*".parse().unwrap()]),
            verbs: Some(Verbs::from_iter([Verb::Read, Verb::Write])),
            expires: Some(expires),
            ..Limits::default()
        }
    );
    let issued = credential.issued().unwrap();
    assert_eq!(
        (issued.issuer.as_str(), issued.subject.as_str()),
        (ISSUER, "alice")
    );
    let may = |verb, topic| {
        let name = access::Name::Topic {
            project: "stf008",
            topic,
        };
        access::decide(&identity, verb, name, HERE.now).is_allowed()
    };
    assert!(may(Verb::Read, "raw-1") && may(Verb::Write, "raw-1"));
    assert!(!may(Verb::Manage, "raw-1") && !may(Verb::Read, "other"));
    let said = identity.to_string();
    assert!(
        said.contains("\"alice\"") && said.contains(ISSUER),
        "{said}"
    );
}

#[test]
fn nobody_is_believed_for_more_than_seven_days() {
    let ground = Ground::new();
    let long = but(claims(), json!({"exp": NOW_S + 365 * 86_400}));
    let verified = ground.check(&header(), &long).unwrap();
    let end = at(NOW_S + LIFE_MAX.as_secs());
    assert_eq!(identity(verified).expires(), Some(end));
}

#[test]
fn every_jwt_that_is_not_right_is_refused_and_says_why() {
    let ground = Ground::new();
    for (others, part) in [
        (
            json!({"iss": "https://evil.example.org/"}),
            "takes those of",
        ),
        (json!({"iss": null}), "no token of this server"),
        (json!({"iss": 1}), "is damaged: its issuer"),
        (
            json!({"aud": "somebody else"}),
            "not for thalweg://beamline7",
        ),
        (json!({"aud": null}), "not for"),
        (json!({"aud": ["a", "b"]}), "not for"),
        (json!({"aud": [[AUDIENCE]]}), "not for"),
        (json!({"exp": NOW_S - 31}), "expired at"),
        (json!({"exp": null}), "no end"),
        (json!({"exp": "never"}), "exp is no time"),
        (json!({"exp": -1}), "exp is no time"),
        (json!({"exp": [NOW_S + 10]}), "exp is no time"),
        (json!({"nbf": NOW_S + 31}), "good from"),
        (json!({"nbf": "tomorrow"}), "nbf is no time"),
        (json!({"iat": NOW_S + 31}), "good from"),
        (json!({"sub": null}), "no subject"),
        (json!({"sub": "x".repeat(256)}), "no subject"),
        (
            json!({"groups": ["users"]}),
            "nothing in the server's access/issuers.json maps it",
        ),
        (json!({"groups": "stf"}), "maps it"),
        (json!({"groups": {"stf008": true}}), "maps it"),
        (json!({"groups": null}), "maps it"),
    ] {
        let why = ground.refused(&header(), &but(claims(), others.clone()));
        assert!(why.contains(part), "{others}: {why}");
    }
    for (others, part) in [
        (json!({"alg": "none"}), "signed by \"none\""),
        (json!({"alg": "None"}), "signed by \"None\""),
        (json!({"alg": "HS256"}), "signed by \"HS256\""),
        (json!({"alg": "RS256"}), "signed by \"RS256\""),
        (json!({"alg": "EdDSA"}), "signed by \"EdDSA\""),
        (json!({"alg": null}), "no algorithm"),
        (json!({"alg": ["ES256"]}), "is damaged"),
        (json!({"kid": "two"}), "\"two\" is none of the issuer's"),
        (json!({"kid": 1}), "no text"),
        (json!({"crit": ["exp"]}), "critical"),
    ] {
        let why = ground.refused(&but(header(), others.clone()), &claims());
        assert!(why.contains(part), "{others}: {why}");
    }
    // Within the leeway it counts, and so does one of several audiences, or a time with a fraction.
    for others in [
        json!({"exp": NOW_S - 29}),
        json!({"nbf": NOW_S + 30, "iat": NOW_S + 30}),
        json!({"aud": ["other", AUDIENCE]}),
        json!({"exp": NOW_S as f64 + 60.5}),
        json!({"groups": "stf008"}),
    ] {
        let claims = but(claims(), others.clone());
        assert!(ground.check(&header(), &claims).is_ok(), "{others}");
    }
}

#[test]
fn a_signature_that_is_missing_or_of_another_kind_counts_for_nothing() {
    let ground = Ground::new();
    let right = ground.signer.sign(&header(), &claims());
    let (message_of_right, signature) = right.rsplit_once('.').unwrap();
    // Without one, with another's, with one of another message.
    let none = message(&json!({"alg": "none"}), &claims());
    let other = Signer::new().sign(&header(), &claims());
    let wider = message(
        &header(),
        &but(claims(), json!({"groups": ["stf008", "x"]})),
    );
    // The public key, which everybody has, as a shared secret.
    let confused = message(&json!({"alg": "HS256", "kid": "one"}), &claims());
    let public = ground.signer.key.public_key().as_ref();
    let secret = hmac::Key::new(hmac::HMAC_SHA256, public);
    let tag = hmac::sign(&secret, confused.as_bytes());
    let hidden = message(&header(), &claims());
    let tag_hidden = hmac::sign(&secret, hidden.as_bytes());
    for wrong in [
        format!("{none}."),
        format!("{message_of_right}."),
        other,
        format!("{wider}.{signature}"),
        format!("{confused}.{}", text(tag)),
        format!("{hidden}.{}", text(tag_hidden)),
        format!("{right}="),
        format!("{right}A"),
        format!("{right}.x"),
        format!(".{right}"),
        right.replacen('.', "..", 1),
    ] {
        assert!(ground.checked(&wrong).is_err(), "{wrong}");
    }
    assert!(ground.checked(&right).is_ok());
    // No bit of it can be another one: a JWT has no byte that is not signed, but for the signature's.
    for index in 0..right.len() {
        let mut bytes = right.clone().into_bytes();
        bytes[index] ^= 1;
        if let Ok(changed) = String::from_utf8(bytes) {
            assert!(ground.checked(&changed).is_err(), "{index}");
        }
    }
}

#[test]
fn what_is_too_long_or_no_text_is_not_looked_at() {
    let ground = Ground::new();
    let long = but(claims(), json!({"more": "x".repeat(JWT_BYTES_MAX)}));
    let long = ground.signer.sign(&header(), &long);
    let why = ground.checked(&long).unwrap_err().to_string();
    assert!(why.contains("at most 16384 are looked at"), "{why}");
    for wrong in ["", " ", "a b", "a\nb", "ä", "a.b.c", "..", "eyJ.eyJ.x"] {
        assert!(ground.checked(wrong).is_err(), "{wrong:?}");
    }
    // No secret in what is said of it.
    let forged = Signer::new().sign(&header(), &claims());
    let why = ground.checked(&forged).unwrap_err().to_string();
    assert!(forged.split('.').all(|part| !why.contains(part)), "{why}");
    assert!(why.contains("signature is wrong"), "{why}");
}

#[test]
fn an_expired_one_says_what_to_do() {
    let ground = Ground::new();
    let refusal = ground.check(&header(), &but(claims(), json!({"exp": NOW_S - 60})));
    let Err(Refusal::Expired(why)) = refusal else {
        panic!("{refusal:?}")
    };
    assert!(why.contains("put a newer one in its place"), "{why}");
}

#[test]
fn a_client_that_names_a_namespace_has_that_one_or_none() {
    let signer = Signer::new();
    let mut file = file();
    file["issuers"][ISSUER]["maps"] = json!([
        {"if": {"scope": "stream"}, "project": {"claim": "projects"}, "may": ["read"], "topics": ["**"]},
        {"if": {}, "project": "public", "may": ["read"], "topics": ["open-*"]},
    ]);
    let issuers = issuers_of(&file, &json!([signer.public("one")]));
    let ask = |others: Value, namespace: &str| {
        let jwt = signer.sign(&header(), &but(claims(), others));
        let asker = Asker { namespace, ..HERE };
        let verified = issuers.check(&jwt, asker, soon());
        verified.map(|verified| verified.project().to_owned())
    };
    let two = json!({"scope": "openid stream", "projects": ["p", "q"]});
    assert_eq!(ask(two.clone(), "q").unwrap(), "q");
    assert_eq!(ask(two.clone(), "public").unwrap(), "public");
    assert!(
        ask(two.clone(), "r")
            .unwrap_err()
            .to_string()
            .contains("\"r\"")
    );
    // Nobody chooses for them, and no other map does.
    let why = ask(two, "").unwrap_err().to_string();
    assert!(why.contains("\"projects\", which has several"), "{why}");
    assert_eq!(
        ask(json!({"scope": "stream", "projects": "p"}), "").unwrap(),
        "p"
    );
    assert_eq!(
        ask(json!({"scope": "upstream", "projects": "p"}), "").unwrap(),
        "public"
    );
    // What is no project's name puts nobody anywhere.
    for odd in [
        json!("p/q"),
        json!(""),
        json!("a\nb"),
        json!(7),
        json!([]),
        json!([7]),
        json!(null),
    ] {
        for namespace in ["", "public"] {
            let refused = ask(json!({"scope": "stream", "projects": odd}), namespace);
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("no name of a project"), "{odd}: {why}");
        }
    }
}

#[test]
fn either_a_person_or_one_credential_can_be_revoked() {
    let ground = Ground::new();
    let ids = |claims: Value| -> Vec<TokenId> {
        let verified = ground.check(&header(), &claims).unwrap();
        identity(verified).credential.unwrap().ids().to_vec()
    };
    let one = ids(claims());
    let again = ids(claims());
    let other = ids(but(claims(), json!({"exp": NOW_S + 60})));
    let bob = ids(but(claims(), json!({"sub": "bob"})));
    assert_eq!(
        one, again,
        "whatever the signature is, which is another one each time"
    );
    assert_eq!(one[0], other[0]);
    assert!(one[1] != other[1] && one[0] != bob[0] && one[1] != bob[1]);
}

#[test]
fn keys_are_of_the_kind_that_their_algorithm_takes() {
    let signer = Signer::new();
    let seed = Ed25519KeyPair::from_seed_unchecked(&[5; 32]).unwrap();
    let edwards = json!({"kty": "OKP", "crv": "Ed25519", "kid": "two",
                         "x": text(seed.public_key().as_ref())});
    let secret = json!({"kty": "oct", "k": text([7; 32]), "kid": "three", "alg": "HS256"});
    let sealed = but(signer.public("four"), json!({"use": "enc"}));
    let mut file = file();
    file["issuers"][ISSUER]["algorithms"] = json!(["ES256", "EdDSA"]);
    let all = json!([signer.public("one"), edwards, secret, sealed]);
    let issuers = issuers_of(&file, &all);
    let by_edwards = |header: Value| {
        let message = message(&header, &claims());
        let jwt = format!("{message}.{}", text(seed.sign(message.as_bytes())));
        issuers.check(&jwt, HERE, soon())
    };
    assert!(by_edwards(json!({"alg": "EdDSA", "kid": "two"})).is_ok());
    assert!(
        by_edwards(json!({"alg": "EdDSA"})).is_ok(),
        "only one key fits"
    );
    assert!(by_edwards(json!({"alg": "EdDSA", "kid": "one"})).is_err());
    assert!(by_edwards(json!({"alg": "ES256", "kid": "two"})).is_err());
    for id in ["three", "four"] {
        let jwt = signer.sign(&json!({"alg": "ES256", "kid": id}), &claims());
        assert!(issuers.check(&jwt, HERE, soon()).is_err(), "{id}");
    }
    // Which of two keys it is has to be said.
    let two = json!([signer.public("one"), Signer::new().public("two")]);
    let issuers = issuers_of(&file, &two);
    let jwt = signer.sign(&json!({"alg": "ES256"}), &claims());
    let why = issuers.check(&jwt, HERE, soon()).unwrap_err().to_string();
    assert!(why.contains("does not name its key"), "{why}");
    for none in ["[]", "{}", "{\"keys\": {}}", ""] {
        assert!(Keys::parse(none).is_err(), "{none}");
    }
    for empty in [
        "{\"keys\": []}",
        "{\"keys\": [{\"kty\": \"oct\", \"k\": \"AAAA\"}]}",
    ] {
        assert!(Keys::parse(empty).unwrap().is_empty(), "{empty}");
    }
}

/// RFC 7515, A.2 and A.3.
#[test]
fn signatures_of_the_standard_are_right() {
    let payload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let rsa = json!({"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"});
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let curve = json!({"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"});
    let of_curve =
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    for (header, key, signature, algorithm) in [
        ("eyJhbGciOiJSUzI1NiJ9", rsa, signature, Algorithm::Rs256),
        ("eyJhbGciOiJFUzI1NiJ9", curve, of_curve, Algorithm::Es256),
    ] {
        let keys = Keys::parse(&json!({"keys": [key]}).to_string()).unwrap();
        let key = keys.of(None, algorithm).unwrap();
        let message = format!("{header}.{payload}");
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let verify = |algorithm: Algorithm, message: &str| {
            algorithm.verify(&key.material, message.as_bytes(), &signature)
        };
        assert!(verify(algorithm, &message), "{algorithm}");
        assert!(!verify(algorithm, &message[1..]), "{algorithm}");
        for other in Algorithm::ALL
            .into_iter()
            .filter(|other| *other != algorithm)
        {
            assert!(!verify(other, &message), "{other}");
        }
    }
}

#[test]
fn what_cannot_be_right_in_the_file_is_named() {
    let issuer = |others: Value| {
        let mut file = file();
        file["issuers"][ISSUER] = but(file["issuers"][ISSUER].clone(), others);
        file.to_string()
    };
    let map = |others: Value| {
        let mut file = file();
        let map = &mut file["issuers"][ISSUER]["maps"][0];
        *map = but(map.clone(), others);
        file.to_string()
    };
    for (text, part) in [
        ("[]".to_owned(), "no object"),
        ("{".to_owned(), "EOF"),
        (json!({"issuer": {}}).to_string(), "no key \"issuer\""),
        (json!({"issuers": {"": {}}}).to_string(), "a name has"),
        (issuer(json!({"audience": null})), "\"audience\""),
        (issuer(json!({"audience": []})), "\"audience\""),
        (issuer(json!({"algorithms": null})), "\"algorithms\""),
        (
            issuer(json!({"algorithms": ["none"]})),
            "\"none\" is no algorithm",
        ),
        (
            issuer(json!({"algorithms": ["HS256"]})),
            "\"HS256\" is no algorithm",
        ),
        (issuer(json!({"keys": null})), "\"keys\""),
        (issuer(json!({"leeway_s": 301})), "up to 300"),
        (issuer(json!({"leeway_s": -1})), "up to 300"),
        (issuer(json!({"maps": null})), "\"maps\""),
        (issuer(json!({"mapping": []})), "no key \"mapping\""),
        (map(json!({"if": null})), "no object \"if\""),
        (map(json!({"project": null})), "project is a name"),
        (map(json!({"project": "a/b"})), "a/b"),
        (map(json!({"may": null})), "\"may\""),
        (map(json!({"may": []})), "no verb"),
        (map(json!({"may": ["fly"]})), "\"fly\""),
        (map(json!({"may": ["admin"]})), "the owner's alone"),
        (map(json!({"topics": null})), "\"topics\""),
        (map(json!({"topics": []})), "no topic patterns"),
        (map(json!({"networks": ["x"]})), "\"x\" is no network"),
        (map(json!({"bytes_per_second": 0})), "no byte a second"),
        (map(json!({"unless": {}})), "no key \"unless\""),
        (
            json!({"introspection": {"maps": []}}).to_string(),
            "\"command\"",
        ),
        (
            json!({"introspection": {"command": ["x"]}}).to_string(),
            "\"maps\"",
        ),
        (json!({"kerberos": {}}).to_string(), "no key \"kerberos\""),
    ] {
        let why = Issuers::parse(&text).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }
    assert!(Issuers::parse("{}").unwrap().is_empty());
}

#[test]
fn who_was_let_in_by_what_is_not_so_any_more_is_known() {
    let (signer, other) = (Signer::new(), Signer::new());
    let one = issuers_of(&file(), &json!([signer.public("one")]));
    let both = issuers_of(&file(), &json!([signer.public("one"), other.public("two")]));
    assert!(one.changed_since(&one).is_empty());
    assert!(
        both.changed_since(&one).is_empty(),
        "a key more changes nothing"
    );
    assert_eq!(one.changed_since(&both), [ISSUER]);
    let mut narrower = file();
    narrower["issuers"][ISSUER]["maps"][0]["may"] = json!(["read"]);
    let narrower = issuers_of(&narrower, &json!([signer.public("one")]));
    assert_eq!(narrower.changed_since(&one), [ISSUER]);
    assert_eq!(Issuers::default().changed_since(&one), [ISSUER]);
    assert!(one.changed_since(&Issuers::default()).is_empty());
    let none = issuers_of(&file(), &json!([]));
    assert_eq!(none.changed_since(&one), [ISSUER]);
}

/// Keys that cannot be read may be right: whoever presents something comes again.
#[test]
fn what_cannot_be_known_is_no_refusal_for_good() {
    let ground = Ground::new();
    let jwt = ground.signer.sign(&header(), &claims());
    let unread = Issuers::parse(&file().to_string()).unwrap();
    let why = unread.check(&jwt, HERE, soon()).unwrap_err();
    assert!(matches!(why, Refusal::Unknown(_)), "{why:?}");
    let none = issuers_of(&file(), &json!([]));
    let why = none.check(&jwt, HERE, soon()).unwrap_err();
    assert!(matches!(why, Refusal::No(_)), "{why:?}");
}

/// Of two values of one name others would take the other one.
#[test]
fn no_name_occurs_twice() {
    let twice = file().to_string().replace(
        r#""if":{"groups":"stf008"}"#,
        r#""if":{"groups":"stf008","groups":"users"}"#,
    );
    assert!(
        Issuers::parse(&twice)
            .unwrap_err()
            .contains("\"groups\" occurs twice")
    );
    assert!(Keys::parse(r#"{"keys": [], "keys": []}"#).is_err());
    let answer = r#"{"active": false, "active": true, "sub": "a", "project": "p"}"#;
    let why = site(&format!("echo '{answer}'")).check("good", HERE, soon());
    assert!(matches!(why, Err(Refusal::Unknown(_))), "{why:?}");
    let equal = json!({"issuers": {"i": file()["issuers"][ISSUER]},
                       "introspection": {"name": "i", "command": ["x"], "maps": []}});
    let why = Issuers::parse(&equal.to_string()).unwrap_err();
    assert!(why.contains("have the name \"i\""), "{why}");
}

/// What is known of a file of keys after looks at it, each at a time of its own, and what was said of the last one.
fn known_after(looks: &[(Duration, KeysFound)]) -> (Keys, String) {
    let (path, start) = (PathBuf::from("/keys.json"), Instant::now());
    let mut known = KnownKeys::default();
    let mut said = Vec::new();
    for (at, found) in looks {
        let found = BTreeMap::from([(path.clone(), found.clone())]);
        said = known.take(found, start + *at);
    }
    (known.of(&path), said.concat())
}

/// Returns whether keys that an issuer has taken back count no more, however it did so.
fn taken_back() -> bool {
    let some = json!({"keys": [Signer::new().public("one")]}).to_string();
    let some = Keys::parse(&some).unwrap();
    let none = Keys::parse("{\"keys\": []}").unwrap();
    let first = (Duration::ZERO, KeysFound::There(some.clone()));
    let (keys, said) = known_after(std::slice::from_ref(&first));
    assert_eq!((keys, said.as_str()), (some.clone(), ""));
    let unread = KeysFound::Unread("EOF".to_owned());
    let (keys, said) = known_after(&[first.clone(), (UNREAD_MAX, unread.clone())]);
    assert_eq!(keys, some, "it may be being written");
    assert!(said.contains("from before count for 60 minutes"), "{said}");
    // One that can be read meanwhile begins the time anew.
    let (late, again) = (UNREAD_MAX * 2, (UNREAD_MAX, first.1.clone()));
    let looks = [
        first.clone(),
        (Duration::ZERO, unread.clone()),
        again,
        (late, unread.clone()),
    ];
    assert_eq!(known_after(&looks).0, some);
    let ends = [
        vec![(UNREAD_MAX, KeysFound::There(none))],
        vec![(UNREAD_MAX, KeysFound::Gone)],
        vec![(Duration::ZERO, unread.clone()), (UNREAD_MAX, unread)],
    ];
    let is_empty = |looks: Vec<_>| {
        let (keys, said) = known_after(&[vec![first.clone()], looks].concat());
        assert!(said.contains("no JWT of"), "{said}");
        keys.is_empty()
    };
    ends.into_iter().all(is_empty)
}

#[test]
fn keys_that_an_issuer_takes_back_count_no_more() {
    assert!(taken_back());
    for fault in [Fault::EmptySetKept, Fault::UnreadForEver] {
        let kept = with(fault, || std::panic::catch_unwind(taken_back));
        assert!(!matches!(kept, Ok(true)), "{fault:?}");
    }
}

#[test]
fn a_file_of_keys_is_a_file_of_the_sites_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    assert_eq!(KeysFound::at(&path), KeysFound::Gone);
    std::fs::write(
        &path,
        json!({"keys": [Signer::new().public("one")]}).to_string(),
    )
    .unwrap();
    let mode = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    assert!(matches!(KeysFound::at(&path), KeysFound::There(keys) if !keys.is_empty()));
    let unread = |path: &Path| match KeysFound::at(path) {
        KeysFound::Unread(why) => why,
        found => panic!("{found:?}"),
    };
    mode(0o646);
    assert!(unread(&path).contains("everybody may write it"));
    mode(0o644);
    std::fs::write(&path, vec![b' '; KEYS_BYTES_MAX as usize + 1]).unwrap();
    assert!(unread(&path).contains("longer than"));
    std::fs::write(&path, [0xff]).unwrap();
    assert!(unread(&path).contains("UTF-8"));
    // Nobody writes this pipe, and nobody waits for that.
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    assert!(unread(&pipe).contains("no regular file"));
    assert!(unread(directory.path()).contains("no regular file"));
}

#[test]
fn a_jwt_of_a_named_issuer_is_never_given_to_the_command() {
    let signer = Signer::new();
    let mut file = file();
    let answer = r#"echo '{"active": true, "sub": "alice", "project": "p"}'"#;
    let maps = json!([{"if": {}, "project": "p", "may": ["read"], "topics": ["**"]}]);
    file["introspection"] = json!({"command": ["sh", "-c", answer], "maps": maps});
    let issuers = issuers_of(&file, &json!([signer.public("one")]));
    let forged = Signer::new().sign(&header(), &claims());
    assert!(!issuers.takes_long(&forged));
    let why = issuers
        .check(&forged, HERE, soon())
        .unwrap_err()
        .to_string();
    assert!(why.contains("signature is wrong"), "{why}");
    // Nor is what is left of one: whoever gets that may mend it.
    let right = signer.sign(&header(), &claims());
    let parts: Vec<&str> = right.split('.').collect();
    let twice = text(format!(
        "{{\"iss\": {ISSUER:?}, \"aud\": {AUDIENCE:?}, \"iss\": \"other\"}}"
    ));
    for damaged in [
        format!("{right}="),
        format!("{}.{}.{}", parts[0], &parts[1][1..], parts[2]),
        format!("{}.{}.{}", &parts[0][..7], parts[1], parts[2]),
        format!("{}.{twice}.{}", parts[0], parts[2]),
        format!("{}.{}.", text("{ \"alg\": \"ES256\"}"), &parts[1][1..]),
        signer.sign(&header(), &but(claims(), json!({"iss": [ISSUER]}))),
        "eyJ.eyJ.x".to_owned(),
        format!("\"{right}\""),
        format!("Bearer:{right}"),
        format!("{right}."),
        right[1..].to_owned(),
        right[3..].to_owned(),
        format!("{}.{}", parts[0], parts[1]),
        format!("x.{}", text(format!("{{ \"iss\": {ISSUER:?}}}"))),
    ] {
        assert!(!issuers.takes_long(&damaged), "{damaged}");
        let refused = |issuers: &Issuers| issuers.check(&damaged, HERE, soon());
        let why = refused(&issuers).unwrap_err().to_string();
        assert!(
            why.contains("was a JWT, and is damaged"),
            "{damaged}: {why}"
        );
        assert!(with(Fault::DamagedAsked, || refused(&issuers)).is_ok());
    }
    let own = "xthalweg-token-1:abc";
    assert!(!issuers.takes_long(own) && issuers.check(own, HERE, soon()).is_err());
    // Others are: some sites have JWTs that only they can read.
    let others = signer.sign(&header(), &but(claims(), json!({"iss": null})));
    assert!(issuers.takes_long(&others));
    assert!(issuers.check(&others, HERE, soon()).is_ok());
}

/// Each fault is noticed by one of the tests above; here by what it lets in.
#[test]
fn planted_faults_let_in_who_is_not_to() {
    let ground = Ground::new();
    let forged = Signer::new().sign(&header(), &claims());
    let unnamed = ground
        .signer
        .sign(&but(header(), json!({"kid": "two"})), &claims());
    let of = |others: Value| ground.signer.sign(&header(), &but(claims(), others));
    let rsa_only = {
        let mut file = file();
        file["issuers"][ISSUER]["algorithms"] = json!(["RS256"]);
        issuers_of(&file, &json!([ground.signer.public("one")]))
    };
    let right = of(json!({}));
    for (fault, issuers, text) in [
        (Fault::AnySignature, &ground.issuers, &forged),
        (Fault::AnyKey, &ground.issuers, &unnamed),
        (
            Fault::AnyAudience,
            &ground.issuers,
            &of(json!({"aud": "x"})),
        ),
        (
            Fault::NeverOver,
            &ground.issuers,
            &of(json!({"exp": NOW_S - 100})),
        ),
        (
            Fault::MapsByDefault,
            &ground.issuers,
            &of(json!({"groups": []})),
        ),
        (Fault::AnyAlgorithm, &rsa_only, &right),
    ] {
        assert!(issuers.check(text, HERE, soon()).is_err(), "{fault:?}");
        let planted = with(fault, || issuers.check(text, HERE, soon()));
        assert!(planted.is_ok(), "{fault:?}: {planted:?}");
    }
    let site = site(r#"echo '{"active": true, "sub": "alice", "project": "p"}'; exit 1"#);
    assert!(site.check("good", HERE, soon()).is_err());
    assert!(with(Fault::FailedAnswer, || site.check("good", HERE, soon())).is_ok());
    for (fault, answer) in [
        (
            Fault::InnerActive,
            r#"{"active": false, "token": {"username": "u", "project": "p"}}"#,
        ),
        (Fault::ActiveUnsaid, r#"{"sub": "u", "project": "p"}"#),
    ] {
        let site = self::site(&format!("echo '{answer}'"));
        assert!(site.check("good", HERE, soon()).is_err(), "{fault:?}");
        let site = self::site(&format!("echo '{answer}'"));
        let planted = with(fault, || site.check("good", HERE, soon()));
        assert!(planted.is_ok(), "{fault:?}: {planted:?}");
    }
    let mut several = file();
    several["issuers"][ISSUER]["maps"] = json!([
        {"if": {}, "project": {"claim": "groups"}, "may": ["read"], "topics": ["**"]},
        {"if": {}, "project": "public", "may": ["read"], "topics": ["**"]},
    ]);
    let issuers = issuers_of(&several, &json!([ground.signer.public("one")]));
    assert!(issuers.check(&right, HERE, soon()).is_err());
    assert!(with(Fault::NextMap, || issuers.check(&right, HERE, soon())).is_ok());
}
