//! The scenarios of the seed pages, by the id of the feature in each test's name, a file a page.

#[cfg(test)]
mod support;

#[cfg(test)]
#[path = "seeds/beyond.rs"]
mod beyond;
#[cfg(test)]
#[path = "seeds/breaker.rs"]
mod breaker;
#[cfg(test)]
#[path = "seeds/containers.rs"]
mod containers;
#[cfg(test)]
#[path = "seeds/destructive.rs"]
mod destructive;
#[cfg(test)]
#[path = "seeds/guards.rs"]
mod guards;
#[cfg(test)]
#[path = "seeds/kill.rs"]
mod kill;
#[cfg(test)]
#[path = "seeds/limits.rs"]
mod limits;
#[cfg(test)]
#[path = "seeds/similarity.rs"]
mod similarity;
#[cfg(test)]
#[path = "seeds/text_loops.rs"]
mod text_loops;
