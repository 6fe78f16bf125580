//! What another node of a flow gave, as a field of a payload.
//!
//! While the flow is enqueued the field is a place that names the node; what that gave is put there before the job of the field is ready.

use std::{cell::RefCell, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::Error as _,
    ser::{Error as _, SerializeStruct as _},
};

use super::failure::{Failure, JobResult};

/// What a node of a [`Flow`](crate::Flow) gave, in the payload of one that waits for it; from [`Node::output`](crate::Node::output).
///
/// In a handler it has the value, unless the other job did not complete and the flow went on without it
/// ([`IfDead::Continue`](crate::IfDead::Continue), or [`Node::on_dead`](crate::Node::on_dead)).
///
/// ```
/// # use queue_core::{Context, Handler, JobResult, Of, job};
/// #[job]
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Parse {
///     page: Of<String>,
/// }
///
/// impl Handler for Parse {
///     async fn run(self, _: &Context) -> JobResult {
///         let page: &String = self.page.value()?; // a terminal failure if there is none
///         println!("{} bytes", page.len());
///         Ok(())
///     }
/// }
///
/// let in_a_test = Parse { page: Of::given("<p>".to_owned()) };
/// assert_eq!(in_a_test.page.get().map(String::as_str), Some("<p>"));
/// ```
#[derive(Clone)]
pub struct Of<T> {
    /// The node's name.
    node: Arc<str>,
    what: What<T>,
}

#[derive(Clone)]
enum What<T> {
    /// Not known yet.
    Place(Place),
    Given(T),
    /// How the node ended that gave nothing.
    Ended(String),
}

/// A node of a flow of this process that is not enqueued yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) flow: u64,
    pub(crate) node: usize,
}

thread_local! {
    /// The places in what is being encoded for a flow; none while nothing is.
    static PLACES: RefCell<Option<Vec<Place>>> = const { RefCell::new(None) };
}

/// What this gives, and the places in what it encodes meanwhile.
pub(crate) fn places_in<R>(encode: impl FnOnce() -> R) -> (R, Vec<Place>) {
    /// Ends it, also if what encodes panics.
    struct Collecting;
    impl Drop for Collecting {
        fn drop(&mut self) {
            PLACES.with_borrow_mut(|places| *places = None);
        }
    }
    PLACES.with_borrow_mut(|places| *places = Some(Vec::new()));
    let _collecting = Collecting;
    let given = encode();
    (given, PLACES.with_borrow_mut(Option::take).unwrap_or_default())
}

impl<T> Of<T> {
    /// This value, as of a node that gave it: for tests of a handler.
    pub fn given(value: T) -> Self {
        Self { node: Arc::from(""), what: What::Given(value) }
    }

    /// No value, as of a node that ended so: for tests of a handler.
    pub fn ended_as(state: impl Into<String>) -> Self {
        Self { node: Arc::from(""), what: What::Ended(state.into()) }
    }

    pub(crate) fn place(node: Arc<str>, place: Place) -> Self {
        Self { node, what: What::Place(place) }
    }

    /// The value; `None` if the other job did not complete, or the flow is not enqueued yet.
    pub fn get(&self) -> Option<&T> {
        if let What::Given(value) = &self.what { Some(value) } else { None }
    }

    /// The value.
    ///
    /// # Errors
    /// Terminal: there is none, and another attempt would find none.
    pub fn value(&self) -> JobResult<&T> {
        self.get().ok_or_else(|| self.missing())
    }

    /// As [`value`](Self::value), and gives the value away.
    ///
    /// # Errors
    /// As of that.
    pub fn into_value(self) -> JobResult<T> {
        let missing = self.missing();
        if let What::Given(value) = self.what { Ok(value) } else { Err(missing) }
    }

    /// How the other job ended, if it did not complete: `dead`, `cancelled`, `expired`, or `gone` of one that was discarded.
    pub fn ended(&self) -> Option<&str> {
        if let What::Ended(state) = &self.what { Some(state) } else { None }
    }

    fn missing(&self) -> Failure {
        Failure::terminal(match &self.what {
            What::Ended(state) => format!("the node `{}` gave nothing: it is {state}", self.node),
            _ => format!("the node `{}` has given nothing yet", self.node),
        })
    }
}

impl<T> fmt::Debug for Of<T> {
    /// Without the value, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.what {
            What::Place(_) => "not yet",
            What::Given(_) => "given",
            What::Ended(state) => state,
        };
        write!(f, "Of({}: {what})", self.node)
    }
}

impl<T: Serialize> Serialize for Of<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Of", 1 + usize::from(!matches!(self.what, What::Place(_))))?;
        fields.serialize_field("$of", &*self.node)?;
        match &self.what {
            What::Given(value) => fields.serialize_field("was", value)?,
            What::Ended(state) => fields.serialize_field("ended", state)?,
            What::Place(place) => PLACES.with_borrow_mut(|places| match places {
                Some(places) => {
                    places.push(*place);
                    Ok(())
                }
                None => Err(S::Error::custom("what a node gives is known only in its flow; add this job to that")),
            })?,
        }
        fields.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Of<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(bound = "T: Deserialize<'de>")]
        struct Stored<T> {
            #[serde(rename = "$of")]
            node: String,
            // `null` is a value too.
            #[serde(default = "none", deserialize_with = "some")]
            was: Option<T>,
            ended: Option<String>,
        }
        let Stored { node, was, ended } = Stored::deserialize(deserializer)?;
        let what = match (was, ended) {
            (Some(value), _) => What::Given(value),
            (None, Some(state)) => What::Ended(state),
            (None, None) => return Err(D::Error::custom(format!("what the node `{node}` gave was not put in"))),
        };
        Ok(Self { node: node.into(), what })
    }
}

fn none<T>() -> Option<T> {
    None
}

fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_and_a_place_is_known_only_in_its_flow() {
        for text in [r#"{"$of":"a","was":null}"#, r#"{"$of":"a","was":7}"#, r#"{"$of":"a","ended":"dead"}"#] {
            let of: Of<Option<u32>> = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&of).unwrap(), text);
            assert_eq!(of.value().is_ok(), of.ended().is_none());
        }
        assert!(serde_json::from_str::<Of<u32>>(r#"{"$of":"a"}"#).unwrap_err().to_string().contains("was not put in"));
        let place = Place { flow: 1, node: 2 };
        let of = Of::<u32>::place("a".into(), place);
        assert!(serde_json::to_string(&of).is_err());
        let (text, places) = places_in(|| serde_json::to_string(&of).unwrap());
        assert_eq!((text.as_str(), places), (r#"{"$of":"a"}"#, vec![place]));
        assert!(of.value().is_err() && of.into_value().is_err());
    }
}
