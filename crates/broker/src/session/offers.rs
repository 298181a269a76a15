//! Codes for pairing that nobody has used yet.

use crate::ctx::Ctx;
use crate::faults::Fault;
use access::{CODE_LASTS, Code, Holder, OneTime, Pairing, Tried, pairing_message};
use std::time::Duration;
use wire::message::Pair;

/// Codes that are good at once.
pub(super) const OFFERS_MAX: usize = 64;
/// A code that was given out.
pub(super) struct Offered {
    pub code: Code,
    once: OneTime<Duration>,
    pub holder: Holder,
    pub life: Duration,
}

/// Those that nobody has used yet.
#[derive(Default)]
pub(super) struct Offers(Vec<Offered>);

impl Offers {
    /// Gives out a code, unless as many as there may be wait. False then.
    pub fn add(&mut self, code: Code, holder: Holder, life: Duration, ctx: &Ctx) -> bool {
        self.forget_old(ctx);
        if self.0.len() >= OFFERS_MAX {
            return false;
        }
        self.0.push(Offered {
            once: OneTime::new(code.clone(), ctx.now.monotonic + CODE_LASTS),
            code,
            holder,
            life,
        });
        true
    }

    fn forget_old(&mut self, ctx: &Ctx) {
        self.0
            .retain(|offered| !offered.once.is_over(ctx.now.monotonic));
    }

    /// The one that a proof is of, which is forgotten.
    pub fn take(&mut self, server: &[u8], pair: &Pair, ctx: &Ctx) -> Option<Offered> {
        self.forget_old(ctx);
        let message = pairing_message(server, Pairing::Joins(&pair.request));
        let mut found = None;
        let mut index = 0;
        while let Some(offered) = self.0.get_mut(index) {
            match offered.once.try_proof(&message, &pair.proof) {
                Tried::Right => found = Some(index),
                Tried::Wrong => {}
                Tried::LastWrong => {
                    self.0.remove(index);
                    continue;
                }
            }
            index += 1;
        }
        let found = found?;
        match ctx.planted(Fault::CodeAgain) {
            true => {
                let kept = &self.0[found];
                Some(Offered {
                    code: kept.code.clone(),
                    once: OneTime::new(kept.code.clone(), kept.once.until()),
                    holder: kept.holder.clone(),
                    life: kept.life,
                })
            }
            false => Some(self.0.remove(found)),
        }
    }
}
