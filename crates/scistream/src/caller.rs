//! Who calls, and which calls there are.

use crate::calls::{Call, Calls, Code, Failed};
use crate::face::Face;
use crate::message::{Places, Release, Request};
use crate::session::Refused;
use access::{
    Decision, Grants, Name, Origin, TEXT_PREFIX, Token, Trust, UnixTime, Verb, check_project,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// What a token has to allow `manage` on, as a topic of its project.
const TOPIC: &str = "scistream";

/// Who calls on one connection.
pub struct Caller {
    face: Arc<Face>,
    peer: IpAddr,
    /// Woken when a call has had what it takes.
    known: Notify,
}

impl Calls for Caller {
    async fn call(&self, call: Call) -> Result<Vec<u8>, Failed> {
        let project = self.project(call.authorization.as_deref()).await?;
        self.known.notify_one();
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
    /// Somebody of whom no call has come yet.
    pub fn new(face: Arc<Face>, peer: IpAddr) -> Self {
        Self {
            face,
            peer,
            known: Notify::new(),
        }
    }

    /// Resolves when a call has come that may be made.
    pub async fn is_known(&self) {
        self.known.notified().await;
    }

    /// The project of who calls, if they may. Without tokens all are of one.
    async fn project(&self, authorization: Option<&str>) -> Result<String, Failed> {
        let options = self.face.options();
        if options.trust.is_none() && options.site.is_none() {
            return Ok(String::new());
        }
        let token = token(authorization)?;
        match (&options.site, &options.trust) {
            (Some(site), _) if !token.starts_with(TEXT_PREFIX) => {
                let project = site(token.to_owned()).await;
                let project = project.filter(|project| check_project(project).is_ok());
                project.ok_or_else(|| unknown("the token is not known".to_owned()))
            }
            (_, Some(trust)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.unwrap_or_default().as_nanos();
                let now = UnixTime(u64::try_from(now).unwrap_or(u64::MAX));
                project(token, self.peer, &trust(), now)
            }
            (_, None) => Err(unknown("tokens of Thalweg are not taken here".to_owned())),
        }
    }
}

fn unknown(why: String) -> Failed {
    Failed(Code::Unauthenticated, why)
}

/// The token of a call. SciStream's clients send it as it is; others say what it is.
fn token(authorization: Option<&str>) -> Result<&str, Failed> {
    let text = authorization.map(str::trim).unwrap_or_default();
    let text = text.strip_prefix("Bearer ").map_or(text, str::trim);
    match text.is_empty() {
        true => Err(unknown(
            "the metadata authorization is to have a token".to_owned(),
        )),
        false => Ok(text),
    }
}

/// The project of a token, if it lets its holder manage sessions.
fn project(token: &str, peer: IpAddr, trust: &Trust, now: UnixTime) -> Result<String, Failed> {
    let verified = Token::from_text(token).and_then(|token| token.verify(trust));
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
        let made = |verbs: &[Verb], expires: u64| {
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
        let asked = |text: Option<&str>| project(token(text)?, here, &trust, UnixTime(10));
        let good = made(&[Verb::Manage], 20);
        assert_eq!(asked(Some(&good)).unwrap(), "stf008");
        assert_eq!(asked(Some(&format!("Bearer {good}"))).unwrap(), "stf008");
        let code = |text: Option<&str>| asked(text).unwrap_err().0;
        assert_eq!(code(None), Code::Unauthenticated);
        assert_eq!(code(Some("INVALID_TOKEN")), Code::Unauthenticated);
        assert_eq!(code(Some(&made(&[Verb::Manage], 9))), Code::Unauthenticated);
        assert_eq!(code(Some(&made(&[Verb::Read], 20))), Code::PermissionDenied);
        let stranger = IssuerKey::new(Seed([5; 32]));
        let trust = Trust {
            keys: vec![stranger.public()],
            ..Trust::default()
        };
        let other = project(&good, here, &trust, UnixTime(10));
        assert_eq!(other.unwrap_err().0, Code::Unauthenticated);
    }
}
