//! Code blocks of `docs/MAPS.md`.

use queue_core::{Handler, JobResult, durable::Durable, job, testing};
use serde::{Deserialize, Serialize};

#[job(name = "guide_album", durable)]
#[derive(Serialize, Deserialize)]
struct Album {
    user: i64,
}

/// Job that creates the thumbnail of an image and returns the thumbnail's size.
#[job(name = "guide_thumbnail", output = u32, send_only)]
#[derive(Serialize, Deserialize)]
struct Thumbnail {
    image: u32,
}

impl Handler for Album {
    #[rustfmt::skip]
    async fn run(self, cx: &Durable) -> JobResult {
        let images = (1..=3).map(|image| Thumbnail { image });
        use queue_core::{JobResult, durable::Durable, wait::WaitError};

        // in the handler of the parent, with `cx: &Durable`
        let thumbs = cx.map("resize", images).queue("images").in_flight(50).await?;  // any iterator over jobs of one type
        let ended = thumbs.join().await?;                                            // the parent is parked meanwhile, and resumed once
        println!("{} of {}, {} dead, {} cancelled", ended.completed, ended.total, ended.dead, ended.cancelled);
        let mut outputs = ended.outputs();
        while let Some(page) = outputs.next_page().await? {                          // 1,000 per page, in the order of the iterator
            for (place, output) in page {
                println!("{place}: {output:?}");                                     // Result<Output, WaitError>
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn results_of_parts() {
    let ran = testing::run(Album { user: 7 }).map_ended("resize", [Ok(120), Err("broken".to_owned()), Ok(80)]).await;
    assert!(ran.is_completed(), "{:?}", ran.error);
}
