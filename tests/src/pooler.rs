//! Simulates a transaction pooler that rejects or drops the startup parameter `options`.

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

/// Response of the pooler to the startup parameter `options`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// Rejects the connection, as `PgBouncer` does by default.
    Refused,
    /// Drops the parameter, as `PgBouncer` does with `ignore_startup_parameters`.
    Ignored,
}

/// Forwards connections to the loopback port `server`. Returns the pooler's own port. The pooler runs until the runtime ends.
///
/// # Errors
/// Returns an error if no port is available.
pub async fn pooler(server: u16, settings: Settings) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, server, settings));
        }
    });
    Ok(port)
}

async fn carry(mut client: TcpStream, port: u16, settings: Settings) -> Result<()> {
    const ENCRYPTION: u32 = 80_877_103;
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    let (version, parameters) = loop {
        let mut body = vec![0; usize::try_from(client.read_u32().await?)? - 4];
        client.read_exact(&mut body).await?;
        let version = u32::from_be_bytes([body[0], body[1], body[2], body[3]]);
        if version == ENCRYPTION {
            client.write_all(b"N").await?;
        } else {
            break (version, body.split_off(4));
        }
    };
    let words: Vec<&[u8]> = parameters.split(|byte| *byte == 0).collect();
    let mut kept = version.to_be_bytes().to_vec();
    for pair in words.chunks_exact(2).filter(|pair| !pair[0].is_empty()) {
        match (pair[0], settings) {
            (b"options", Settings::Refused) => {
                let fields = "SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
                client.write_all(b"E").await?;
                client.write_u32(u32::try_from(fields.len())? + 4).await?;
                client.write_all(fields.as_bytes()).await?;
                return Ok(());
            }
            (b"options", Settings::Ignored) => {}
            _ => pair.iter().for_each(|word| kept.extend([word, &b"\0"[..]].concat())),
        }
    }
    kept.push(0);
    server.write_u32(u32::try_from(kept.len())? + 4).await?;
    server.write_all(&kept).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
