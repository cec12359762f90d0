// Package browser lets tests use a page in a real Chromium, over the browser's debugging pipe.
//
// Contract: Open skips the test, with a message, if there is no Chromium. Only one goroutine may use a Tab. A test waits with Until for
// the state that it expects, and never for a fixed time. The browser ends with the test.
package browser
