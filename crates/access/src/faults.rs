//! Faults that tests plant, to see that they are noticed.

faults::faults! {
    /// Take a token from which restrictions were cut off.
    CutRestriction,
    /// Take a credential whose time is over.
    Expired,
    /// Let a grant to one project count for the names of another.
    WrongProject,
    /// Look up the last block of a token only when asked whether it is revoked.
    RevokedParent,
    /// Take a certificate that is for another site.
    OtherSite,
    /// Leave the server's certificate out of proofs of a code, so that they pass on another connection.
    UnboundPairing,
}
