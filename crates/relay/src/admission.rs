//! Who may come in: with the code once, with the session's credential from then on.

use crate::faults::{Fault, planted};
use crate::frame::{Hello, Purpose, Refusal};
use crate::proof::{Binding, Claim, Credential, PROOF_BYTES, message, prove, verify};
use access::{CODE_LASTS, Code, OneTime, Tried};
use std::time::Instant;

/// An offer, as its listener sees it.
///
/// ```text
///  Offered ──right code──► Joined ──► Over
///     │                               ▲
///     └── 10 minutes, or 100 wrong ───┘
/// ```
#[derive(Debug)]
enum State {
    /// Nobody has come yet.
    Offered(OneTime<Instant>),
    /// Somebody has, and comes again with this.
    Joined(Credential),
    /// Nobody may come, and why.
    Over(Refusal),
}

/// Decides who comes in. Plain state: the time is brought.
#[derive(Debug)]
pub struct Admission {
    state: State,
    ends: Instant,
}

/// What somebody who may come in is answered.
#[derive(Debug)]
pub struct Admitted {
    /// Proves that it is the offer that answers.
    pub proof: [u8; PROOF_BYTES],
    /// The session.
    pub credential: Credential,
}

impl Admission {
    /// An offer that lasts until `ends`, with a code that is good for [`CODE_LASTS`].
    pub fn new(code: Code, now: Instant, ends: Instant) -> Self {
        Self::with_code_until(code, now + CODE_LASTS, ends)
    }

    /// An offer that lasts until `ends`, with a code that is good until then.
    pub fn with_code_until(code: Code, code_ends: Instant, ends: Instant) -> Self {
        let until = code_ends.min(ends);
        Self {
            state: State::Offered(OneTime::new(code, until)),
            ends,
        }
    }

    /// When the offer ends.
    pub fn ends(&self) -> Instant {
        self.ends
    }

    /// Until when the code is good; `None` if it is no longer.
    pub fn code_until(&self) -> Option<Instant> {
        match &self.state {
            State::Offered(code) => Some(code.until()),
            _ => None,
        }
    }

    /// Whether who comes means this offer among several: they have its code, or its session.
    pub fn is_meant(&self, binding: &Binding, hello: &Hello) -> bool {
        match (&self.state, hello.purpose) {
            (State::Offered(code), Purpose::Join) => {
                verify(&code.key(), Claim::Joins, binding, &hello.proof)
            }
            (State::Joined(credential), Purpose::Attach) => credential.session == hello.session,
            _ => false,
        }
    }

    /// Ends what time has ended. Why nobody may come, if that is so.
    pub fn tick(&mut self, now: Instant) -> Option<Refusal> {
        if now >= self.ends {
            self.state = State::Over(Refusal::Over);
        }
        if let State::Offered(code) = &self.state
            && code.is_over(now)
            && !planted(Fault::ExpiredCode)
        {
            self.state = State::Over(Refusal::Expired);
        }
        match &self.state {
            State::Over(why) => Some(*why),
            _ => None,
        }
    }

    /// Lets nobody come any more.
    pub fn end(&mut self) {
        self.state = State::Over(Refusal::Over);
    }

    /// Somebody comes with the code, and would get `credential` for it.
    pub fn join(
        &mut self,
        now: Instant,
        binding: &Binding,
        proof: &[u8],
        credential: Credential,
    ) -> Result<Admitted, Refusal> {
        if let Some(why) = self.tick(now) {
            return Err(why);
        }
        let State::Offered(code) = &mut self.state else {
            return Err(Refusal::Used);
        };
        let key = code.key();
        match code.try_proof(&message(Claim::Joins, binding), proof) {
            Tried::Right => {}
            Tried::Wrong => return Err(Refusal::Wrong),
            Tried::LastWrong => {
                self.state = State::Over(Refusal::Guessed);
                return Err(Refusal::Wrong);
            }
        }
        let proof = prove(&key, Claim::Offers, binding);
        if !planted(Fault::UsedCode) {
            self.state = State::Joined(credential.clone());
        }
        Ok(Admitted { proof, credential })
    }

    /// Somebody comes again.
    pub fn attach(
        &mut self,
        now: Instant,
        binding: &Binding,
        session: [u8; 16],
        proof: &[u8],
    ) -> Result<Admitted, Refusal> {
        if let Some(why) = self.tick(now) {
            return Err(why);
        }
        let State::Joined(credential) = &self.state else {
            return Err(Refusal::Unknown);
        };
        let key = credential.key();
        let is_theirs = credential.session == session;
        if !verify(&key, Claim::Returns, binding, proof) || !is_theirs {
            return Err(Refusal::Unknown);
        }
        Ok(Admitted {
            proof: prove(&key, Claim::Receives, binding),
            credential: credential.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;
    use access::CODE_WRONG_MAX;
    use std::time::Duration;

    const HERE: Binding = Binding([1; 32]);

    fn code() -> Code {
        Code::new([7; 10])
    }

    fn credential() -> Credential {
        Credential::new([5; 16], [6; 32])
    }

    fn offer() -> (Admission, Instant) {
        let now = Instant::now();
        (
            Admission::new(code(), now, now + Duration::from_secs(8 * 3600)),
            now,
        )
    }

    fn join(admission: &mut Admission, now: Instant, code: &Code) -> Result<Admitted, Refusal> {
        let proof = prove(&code.key(), Claim::Joins, &HERE);
        admission.join(now, &HERE, &proof, credential())
    }

    #[test]
    fn a_code_is_good_once() {
        let (mut admission, now) = offer();
        let admitted = join(&mut admission, now, &code()).unwrap();
        assert!(verify(&code().key(), Claim::Offers, &HERE, &admitted.proof));
        assert_eq!(
            join(&mut admission, now, &code()).unwrap_err(),
            Refusal::Used
        );
        assert_eq!(admission.code_until(), None);
        let again = faults::with(Fault::UsedCode, || {
            let (mut admission, now) = offer();
            join(&mut admission, now, &code()).unwrap();
            join(&mut admission, now, &code()).is_ok()
        });
        assert!(again, "the fault is not planted");
    }

    #[test]
    fn a_code_is_good_for_ten_minutes() {
        let (mut admission, now) = offer();
        let late = now + CODE_LASTS;
        let taken = faults::with(Fault::ExpiredCode, || {
            let (mut admission, _) = offer();
            join(&mut admission, late, &code()).is_ok()
        });
        assert!(taken, "the fault is not planted");
        assert_eq!(
            join(&mut admission, late, &code()).unwrap_err(),
            Refusal::Expired
        );
        assert_eq!(
            join(&mut admission, now, &code()).unwrap_err(),
            Refusal::Expired
        );
    }

    #[test]
    fn wrong_codes_are_counted() {
        let (mut admission, now) = offer();
        let wrong = Code::new([8; 10]);
        for _ in 1..CODE_WRONG_MAX {
            assert_eq!(
                join(&mut admission, now, &wrong).unwrap_err(),
                Refusal::Wrong
            );
        }
        let (mut other, _) = offer();
        assert_eq!(join(&mut other, now, &wrong).unwrap_err(), Refusal::Wrong);
        join(&mut other, now, &code()).unwrap();
        assert_eq!(
            join(&mut admission, now, &wrong).unwrap_err(),
            Refusal::Wrong
        );
        assert_eq!(
            join(&mut admission, now, &code()).unwrap_err(),
            Refusal::Guessed
        );
    }

    #[test]
    fn the_credential_opens_until_the_offer_ends() {
        let (mut admission, now) = offer();
        let proof = prove(&credential().key(), Claim::Returns, &HERE);
        let attach = |admission: &mut Admission, now, session, proof: &[u8]| {
            admission
                .attach(now, &HERE, session, proof)
                .map(|admitted| admitted.proof)
        };
        assert_eq!(
            attach(&mut admission, now, [5; 16], &proof),
            Err(Refusal::Unknown)
        );
        join(&mut admission, now, &code()).unwrap();
        let late = now + Duration::from_secs(7 * 3600);
        let answer = attach(&mut admission, late, [5; 16], &proof).unwrap();
        assert!(verify(&credential().key(), Claim::Receives, &HERE, &answer));
        assert_eq!(
            attach(&mut admission, now, [4; 16], &proof),
            Err(Refusal::Unknown)
        );
        assert_eq!(
            attach(&mut admission, now, [5; 16], &[0; 32]),
            Err(Refusal::Unknown)
        );
        let over = now + Duration::from_secs(8 * 3600);
        assert_eq!(
            attach(&mut admission, over, [5; 16], &proof),
            Err(Refusal::Over)
        );
    }
}
