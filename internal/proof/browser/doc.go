// Package browser lets tests use a page in a real Chromium, over the browser's debugging pipe.
//
// Contract: Open skips a test with a message where there is no Chromium. A Tab is used by one goroutine. A test waits for what it
// expects with Until, and never for a time. The browser ends with the test.
package browser
