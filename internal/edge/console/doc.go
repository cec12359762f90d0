// Package console serves a web page that shows a node, or a fleet of nodes, as it changes.
//
// Contract:
//   - The page is plain HTML, CSS and JavaScript, compiled into the program. It loads nothing from other sites, and a strict
//     Content-Security-Policy enforces this in the browser. The page inserts everything that it receives as text, never as HTML.
//   - Each viewer has one stream (Server-Sent Events) of documents. A document is sent when it has changed, at most once a second;
//     a viewer that reads slowly gets fewer, newer documents. The number of viewers and the size of a document are bounded.
//   - Without viewers, nothing is computed and no goroutine runs: the documents are computed in the requests of the viewers, by one
//     request at a time. With viewers, the computation uses at most about a hundredth of one processor.
//   - A stream ends after half an hour. The browser opens another one, so the rights of its user are checked again.
//   - Everything is read only. Requests that a browser makes for a page of another site are refused.
//   - Login protects a console on a loopback port by a link that works once. It accepts requests only for its own host name, so
//     that an attacker's domain whose name resolves to this machine (DNS rebinding) gets no access.
package console
