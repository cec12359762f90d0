package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience limits the wait for one answer of the browser, and the wait of Until for one expression.
const patience = 40 * time.Second

// Tab is a page in a browser.
type Tab struct {
	t       *testing.T
	in      io.Writer
	answers chan answer
	last    int
	session string
	// navigates is set while a call may fail because the page is replaced by another one: it then has no result.
	navigates bool
	// Problems are the errors that the page has written to its console, and exceptions.
	Problems []string
}

// answer is a message from the browser: the answer of a call, or an event.
type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Params json.RawMessage `json:"params"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Open starts a Chromium with an empty profile and returns an empty page of this size. It skips the test if there is no Chromium.
func Open(t *testing.T, width, height int) *Tab {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			program = p
			break
		}
	}
	if program == "" {
		t.Skip("there is no Chromium on this machine: apt-get install chromium")
	}
	profile, err := os.MkdirTemp("", "wherry-browser-")
	if err != nil {
		t.Fatal(err)
	}
	toBrowser, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", //nolint:gosec // found in PATH
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir="+profile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the browser has many processes, which end together
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser}   // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	_, _ = toBrowser.Close(), fromBrowser.Close()
	tab := &Tab{t: t, in: in, answers: make(chan answer, 64)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		tab.read(out)
	}()
	t.Cleanup(func() {
		_ = in.Close() // the browser exits when its pipe is closed
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = out.Close()
		for range tab.answers { // receive the rest, so that tab.read does not block and returns
		}
		<-read
		_ = os.RemoveAll(profile)
	})
	var target struct{ TargetID, SessionID string }
	tab.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	tab.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	tab.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		tab.call(domain+".enable", nil, nil)
	}
	tab.resize(width, height)
	return tab
}

// read sends each message of the browser to b.answers, until the browser's pipe ends. A zero byte ends a message.
func (b *Tab) read(out io.Reader) {
	defer close(b.answers)
	for r := bufio.NewReader(out); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(text[:len(text)-1], &a) == nil {
			b.answers <- a
		}
	}
}

// navigated is the browser's error for an expression whose page was replaced by another one during the evaluation.
const navigated = "Inspected target navigated or closed"

// call calls a method of the browser and decodes the result.
func (b *Tab) call(method string, params map[string]any, into any) {
	b.t.Helper()
	b.last++
	text, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	if b.session != "" {
		text, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": b.session})
	}
	if err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	if err != nil {
		b.t.Fatalf("ask the browser for %s: %v", method, err)
	}
	limit := time.After(patience)
	for {
		select {
		case a, ok := <-b.answers:
			switch {
			case !ok:
				b.t.Fatalf("the browser ended during %s", method)
			case a.Method == "Runtime.exceptionThrown" || a.Method == "Log.entryAdded":
				b.Problems = append(b.Problems, string(a.Params))
			case a.ID != b.last:
			case a.Error != nil && b.navigates && a.Error.Message == navigated:
				return
			case a.Error != nil:
				b.t.Fatalf("%s: %s", method, a.Error.Message)
			default:
				if into != nil {
					if err := json.Unmarshal(a.Result, into); err != nil {
						b.t.Fatalf("read the result of %s: %v", method, err)
					}
				}
				return
			}
		case <-limit:
			b.t.Fatalf("the browser does not answer %s", method)
		}
	}
}

// Go opens an address.
func (b *Tab) Go(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// Dark sets whether the browser prefers dark colours.
func (b *Tab) Dark(dark bool) {
	b.t.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}}}, nil)
}

// Eval evaluates an expression of JavaScript in the page and decodes its value.
func (b *Tab) Eval(expression string, into any) {
	b.t.Helper()
	var r struct {
		Result    struct{ Value json.RawMessage }
		Exception *struct{ Text string } `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.Exception != nil {
		b.t.Fatalf("evaluate %s: %s %s", expression, r.Exception.Text, r.Result.Value)
	}
	if into != nil && len(r.Result.Value) > 0 {
		if err := json.Unmarshal(r.Result.Value, into); err != nil {
			b.t.Fatalf("value of %s: %v", expression, err)
		}
	}
}

// Until waits until an expression is true in the page. It evaluates the expression every 50 ms, and fails the test after the time patience.
func (b *Tab) Until(what, expression string) {
	b.t.Helper()
	b.navigates = true // a click before may still be loading the next page: then the expression is evaluated again there
	defer func() { b.navigates = false }()
	for limit := time.Now().Add(patience); ; {
		var is bool
		b.Eval(fmt.Sprintf(`(async () => { for (let i = 0; i < 60; i++) { if (%s) return true; await new Promise((f) => setTimeout(f, 50)); } return false; })()`, expression), &is)
		if is {
			return
		}
		if time.Now().After(limit) {
			var text string
			b.Eval(`document.body ? document.body.innerText.slice(0, 3000) : ""`, &text)
			b.t.Fatalf("the page does not show %s; it shows:\n%s\nproblems: %v", what, text, b.Problems)
		}
	}
}

// Terminal shows commands, each followed by its output, as a terminal shows them, and makes the page as high as the text.
func (b *Tab) Terminal(commandsAndOutputs ...string) {
	b.t.Helper()
	var page strings.Builder
	page.WriteString(`<body style="margin:0;background:#14181f"><pre style="margin:0;padding:16px 20px;font:13px/1.45 'DejaVu Sans Mono',monospace;color:#d8dee9;white-space:pre-wrap">`)
	for i, text := range commandsAndOutputs {
		if i%2 == 0 {
			fmt.Fprintf(&page, `<span style="color:#8fbcbb">$</span> <b style="color:#fff">%s</b>`+"\n", html.EscapeString(text))
		} else {
			page.WriteString(html.EscapeString(strings.TrimRight(text, "\n")) + "\n\n")
		}
	}
	b.Go("data:text/html;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(page.String())))
	var size struct{ Width, Height int }
	b.Until("the terminal", `document.querySelector("pre")`)
	b.Eval(`({width: innerWidth, height: document.querySelector("pre").offsetHeight})`, &size)
	b.resize(size.Width, size.Height)
}

func (b *Tab) resize(width, height int) {
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Picture writes a PNG of the page to a file.
func (b *Tab) Picture(path string) {
	b.t.Helper()
	var p struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &p)
	data, err := base64.StdEncoding.DecodeString(p.Data)
	if err == nil {
		err = os.WriteFile(filepath.Clean(path), data, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
