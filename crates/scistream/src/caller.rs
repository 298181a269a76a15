//! Who calls, and which calls there are.

use crate::calls::{Call, Calls, Code, Failed};
use crate::face::Face;
use crate::message::{Places, Release, Request};
use crate::session::Refused;
use access::{Decision, Grants, Name, Origin, Token, Trust, UnixTime, Verb};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a token has to allow `manage` on, as a topic of its project.
const TOPIC: &str = "scistream";

/// Who calls on one connection.
pub struct Caller {
    pub face: Arc<Face>,
    pub peer: IpAddr,
}

impl Calls for Caller {
    async fn call(&self, call: Call) -> Result<Vec<u8>, Failed> {
        let project = self.project(call.authorization.as_deref())?;
        let face = &self.face;
        let wrong = |why| Failed(Code::InvalidArgument, format!("the message: {why}"));
        match call.path.as_str() {
            "/scistream.Control/req" => {
                let asked = Request::decode(&call.message).map_err(wrong)?;
                face.req(&asked, &project).await
            }
            "/scistream.Control/hello" => {
                let said = Places::decode(&call.message).map_err(wrong)?;
                face.hello(said, &project)
            }
            "/scistream.Control/update" => {
                let said = Places::decode(&call.message).map_err(wrong)?;
                face.update(said, &project).await
            }
            "/scistream.Control/release" => {
                let asked = Release::decode(&call.message).map_err(wrong)?;
                face.release(&asked.uid, &project)
            }
            _ => {
                let why = "the calls are req, hello, update and release of scistream.Control";
                Err(Failed(Code::Unimplemented, why.to_owned()))
            }
        }
    }
}

impl Caller {
    /// The project of who calls, if they may. Without tokens all are of one.
    fn project(&self, authorization: Option<&str>) -> Result<String, Failed> {
        let Some(trust) = &self.face.options().trust else {
            return Ok(String::new());
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = UnixTime(u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX));
        project(authorization, self.peer, &trust(), now)
    }
}

/// The project of a token, if it lets its holder manage sessions.
fn project(
    authorization: Option<&str>,
    peer: IpAddr,
    trust: &Trust,
    now: UnixTime,
) -> Result<String, Failed> {
    let unknown = |why: String| Failed(Code::Unauthenticated, why);
    // SciStream's clients send the token itself; others say what it is.
    let text = authorization.map(str::trim).unwrap_or_default();
    let text = text.strip_prefix("Bearer ").map_or(text, str::trim);
    if text.is_empty() {
        return Err(unknown(
            "the metadata authorization is to have a token".to_owned(),
        ));
    }
    let verified = Token::from_text(text).and_then(|token| token.verify(trust));
    let verified = verified.map_err(|error| unknown(error.to_string()))?;
    let project = verified.project().to_owned();
    let origin = Origin {
        address: Some(peer),
        ..Origin::default()
    };
    let identity = verified.identity(origin, Arc::new(Grants::default()));
    identity
        .check(now)
        .map_err(|denied| unknown(denied.to_string()))?;
    let credential = identity.credential.as_ref();
    if credential.is_some_and(|one| one.once().is_some()) {
        return Err(unknown(
            "a token for one session is none for these calls".to_owned(),
        ));
    }
    let name = Name::Topic {
        project: &project,
        topic: TOPIC,
    };
    match access::decide(&identity, Verb::Manage, name, now) {
        Decision::Allow => Ok(project),
        Decision::Deny(denied) => Err(Failed(Code::PermissionDenied, denied.to_string())),
    }
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(why) => Self(Code::InvalidArgument, why),
            Refused::NotFound => Self(Code::NotFound, "there is no such session".to_owned()),
            Refused::Exhausted(why) => Self(Code::ResourceExhausted, why.to_owned()),
            Refused::Denied(why) => Self(Code::PermissionDenied, why),
            Refused::NotNow(why) => Self(Code::FailedPrecondition, why.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::{IssuerKey, Limits, Seed, Verbs};

    #[test]
    fn a_token_says_the_project_and_has_to_manage_it() {
        let key = IssuerKey::new(Seed([3; 32]));
        let trust = Trust {
            keys: vec![key.public()],
            ..Trust::default()
        };
        let here: IpAddr = "10.0.0.1".parse().unwrap();
        let token = |verbs: &[Verb], expires: u64| {
            let limits = Limits {
                project: Some("stf008".to_owned()),
                verbs: Some(verbs.iter().copied().collect::<Verbs>()),
                expires: Some(UnixTime(expires)),
                ..Limits::default()
            };
            Token::issue(&key, &limits, Seed([4; 32]))
                .unwrap()
                .to_text()
        };
        let asked = |text: Option<&str>| project(text, here, &trust, UnixTime(10));
        let good = token(&[Verb::Manage], 20);
        assert_eq!(asked(Some(&good)).unwrap(), "stf008");
        assert_eq!(asked(Some(&format!("Bearer {good}"))).unwrap(), "stf008");
        let code = |text: Option<&str>| asked(text).unwrap_err().0;
        assert_eq!(code(None), Code::Unauthenticated);
        assert_eq!(code(Some("INVALID_TOKEN")), Code::Unauthenticated);
        assert_eq!(
            code(Some(&token(&[Verb::Manage], 9))),
            Code::Unauthenticated
        );
        assert_eq!(
            code(Some(&token(&[Verb::Read], 20))),
            Code::PermissionDenied
        );
        let stranger = IssuerKey::new(Seed([5; 32]));
        let trust = Trust {
            keys: vec![stranger.public()],
            ..Trust::default()
        };
        let other = project(Some(&good), here, &trust, UnixTime(10));
        assert_eq!(other.unwrap_err().0, Code::Unauthenticated);
    }
}
