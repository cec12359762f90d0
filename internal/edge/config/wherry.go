package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// These constants are the apiVersion and the kind that the file of --wherry-config must have.
const (
	WherryAPIVersion = "wherry.dev/v1alpha1"
	WherryKind       = "WherryConfiguration"
)

// Wherry has the settings that Kubernetes has no field for. wherryFields documents each of them.
type Wherry struct {
	APIVersion     string           `json:"apiVersion"`
	Kind           string           `json:"kind"`
	Server         WherryServer     `json:"server"`
	ControlSocket  WherrySocketFile `json:"controlSocket"`
	Images         WherryImages     `json:"images"`
	FlightRecorder WherryRecorder   `json:"flightRecorder"`
	OfflineStart   WherryOffline    `json:"offlineStart"`
	Console        WherryConsole    `json:"console"`
}

// WherryOffline are the settings for a start while the API server does not answer: the node then starts its pods from a record on disk.
type WherryOffline struct {
	Enabled bool   `json:"enabled"`
	KeyFile string `json:"keyFile,omitempty"`
	After   string `json:"after"`
	MaxAge  string `json:"maxAge"`
	MaxSize string `json:"maxSize"`
}

// WherryRecorder are the settings of the flight recorder. It stores on disk the turns (passes of a worker's state machine) of pods that
// went wrong.
type WherryRecorder struct {
	MaxBytes int64 `json:"maxBytes"`
}

// WherryConsole are the settings of the web page about the node. Enabled is nil if the file does not set it.
type WherryConsole struct {
	Enabled *bool `json:"enabled,omitempty"`
}

// WherryImages are the settings of images.
type WherryImages struct {
	NeverRemove []string `json:"neverRemove,omitempty"`
}

// WherryServer are the settings of the HTTPS API.
type WherryServer struct {
	StreamingByGet        string  `json:"streamingByGet"`
	ReviewQPS             float64 `json:"reviewQPS"`
	ReviewBurst           int     `json:"reviewBurst"`
	MaxWaitingReviews     int     `json:"maxWaitingReviews"`
	MaxUnknownConnections int     `json:"maxUnknownConnections"`
}

// WherrySocketFile are the settings of the control socket. Enabled is nil if the file does not set it.
type WherrySocketFile struct {
	Enabled *bool  `json:"enabled,omitempty"`
	Path    string `json:"path,omitempty"`
}

// These are the possible values of server.streamingByGet.
const (
	StreamingRequireCreate = "RequireCreate"
	StreamingAsUpstream    = "AsUpstream"
)

// wherryField documents one field of the file of --wherry-config.
type wherryField struct {
	path     string
	defaults string // default value, as in the file or in words
	doc      string
}

// wherryFields documents every field of Wherry. docs/wherry-config.md is generated from it.
var wherryFields = []wherryField{
	{"apiVersion", "", "`" + WherryAPIVersion + "`. Required."},
	{"kind", "", "`" + WherryKind + "`. Required."},
	{"server.streamingByGet", StreamingRequireCreate,
		"Which rights exec, attach, run and port-forward by GET (WebSocket) need. `" + StreamingRequireCreate + "`: the right to `create` nodes/proxy, as for POST, and the right to `get` it. " +
			"`" + StreamingAsUpstream + "`: only the right to `get` nodes/proxy, as with Kubernetes' kubelet; then every client that may read through nodes/proxy can run commands in every container of the node."},
	{"server.reviewQPS", "20",
		"How many TokenReviews and SubjectAccessReviews a second the node sends to the API server. They have a client of their own, so requests of unknown clients cannot delay statuses, secrets and heartbeats."},
	{"server.reviewBurst", "40", "How many reviews the node may send at once if it has sent none for a while."},
	{"server.maxWaitingReviews", "64",
		"How many requests may wait for a review at the same time. One address gets at most half of the free slots; further requests get 429 with Retry-After."},
	{"server.maxUnknownConnections", "256",
		"How many connections to the HTTPS API may be open whose client has not been authenticated yet. If there are more, the node closes the oldest connection of the address that has the most. Authenticated connections do not count."},
	{"controlSocket.enabled", "true for a standalone or simulated node, false for one that has joined a cluster",
		"Whether the node has a control socket, which `wherry ps`, `logs`, `exec` and other commands use. Whoever can open it may do everything on the node. `--push-socket` overrides it."},
	{"controlSocket.path", SystemSocket + "; with another --root-dir: another name in the same directory; for a simulated node: " + socketName + " in --root-dir",
		"The path of the control socket. Choose a directory that no pod mounts as a volume. `--push-socket` overrides it."},
	{"console.enabled", "true for a standalone or simulated node, false for one that has joined a cluster",
		"Whether the node serves a web page about itself at `/console/`, on the HTTPS API and on the control socket. On the HTTPS API a client needs the right to `get` nodes/console or nodes/proxy. docs/console.md describes the page."},
	{"images.neverRemove", "none",
		"Images that the node never removes, even if they are unused for long or the disk is full: full names without tag or digest " +
			"(`docker.io/library/busybox`), or all images of a registry or a path (`registry.example.com/base/*`). Images that the runtime has pinned are never removed either."},
	{"flightRecorder.maxBytes", "8388608",
		"How many bytes of disk, below --root-dir, the recorded turns of pods that went wrong may take; `wherry explain POD --recorded` reads them. " +
			"0: the node records nothing. Otherwise from 65536 to 1073741824. The node keeps at most 8 turns of one pod and 1000 turns in all; the oldest go first."},
	{"offlineStart.enabled", "false",
		"Whether the node keeps on disk what the API server last said, and starts its pods from that record if the API server does not answer when the node starts ([offline.md](offline.md))."},
	{"offlineStart.keyFile", "`offline-start.key` in --cert-dir, which the node makes",
		"The file with the key that encrypts the record: 16 to 4096 random bytes that only the file's owner may read. The node never makes a file that is named here; without it, it keeps no record and starts from none. " +
			"With systemd's LoadCredentialEncrypted= the path is for example `/run/credentials/kubelet.service/offline-start`."},
	{"offlineStart.after", "5s", "How long the API server may take to answer before the node starts from the record: 1s to 10m."},
	{"offlineStart.maxAge", "168h", "How long ago the API server may have answered last. The node starts from no older record. 1m to 87600h."},
	{"offlineStart.maxSize", "64Mi", "How large the record may be: 1Mi to 1Gi. If more is needed, the newest pods are left out, and the log says so."},
}

func defaultWherry() Wherry {
	return Wherry{
		APIVersion: WherryAPIVersion, Kind: WherryKind,
		Server:         WherryServer{StreamingByGet: StreamingRequireCreate, ReviewQPS: 20, ReviewBurst: 40, MaxWaitingReviews: 64, MaxUnknownConnections: 256},
		FlightRecorder: WherryRecorder{MaxBytes: 8 << 20},
		OfflineStart:   WherryOffline{After: "5s", MaxAge: "168h", MaxSize: "64Mi"},
	}
}

// loadWherry reads the file of --wherry-config over the defaults; "": no file.
func loadWherry(name string) (Wherry, error) {
	w := defaultWherry()
	if name == "" {
		return w, nil
	}
	data, err := readBounded(name, maxFile)
	if err != nil {
		return w, fmt.Errorf("read --wherry-config: %w", err)
	}
	if err := decodeWherry(name, data, &w); err != nil {
		return w, fmt.Errorf("--wherry-config %w", err)
	}
	if p := w.ControlSocket.Path; p != "" && !filepath.IsAbs(p) {
		abs, err := filepath.Abs(name)
		if err != nil {
			return w, fmt.Errorf("--wherry-config %s: controlSocket.path: %w", name, err)
		}
		w.ControlSocket.Path = filepath.Join(filepath.Dir(abs), p)
	}
	if p := w.OfflineStart.KeyFile; p != "" && !filepath.IsAbs(p) {
		abs, err := filepath.Abs(name)
		if err != nil {
			return w, fmt.Errorf("--wherry-config %s: offlineStart.keyFile: %w", name, err)
		}
		w.OfflineStart.KeyFile = filepath.Join(filepath.Dir(abs), p)
	}
	return w, nil
}

// decodeWherry reads the file of this name, with content data, over the values of w.
func decodeWherry(name string, data []byte, w *Wherry) error {
	d := newDocument(name, "remove or correct it (docs/wherry-config.md lists the fields)")
	if err := d.Decode(data, WherryAPIVersion, WherryKind, w); err != nil {
		return err
	}
	w.check(d.Bad)
	return errors.Join(d.Errs...)
}

// check calls bad for each value that is not valid.
func (w *Wherry) check(bad func(path, text string)) {
	s := &w.Server
	if s.StreamingByGet != StreamingRequireCreate && s.StreamingByGet != StreamingAsUpstream {
		bad("server.streamingByGet", fmt.Sprintf("%q must be %s or %s", s.StreamingByGet, StreamingRequireCreate, StreamingAsUpstream))
	}
	if !(s.ReviewQPS > 0) || s.ReviewQPS > 10_000 {
		bad("server.reviewQPS", fmt.Sprintf("%v must be above 0 and at most 10000", s.ReviewQPS))
	}
	for _, n := range []struct {
		path  string
		value int
	}{{"server.reviewBurst", s.ReviewBurst}, {"server.maxWaitingReviews", s.MaxWaitingReviews}, {"server.maxUnknownConnections", s.MaxUnknownConnections}} {
		if n.value < 1 || n.value > 100_000 {
			bad(n.path, fmt.Sprintf("%d must be from 1 to 100000", n.value))
		}
	}
	if n := w.FlightRecorder.MaxBytes; n != 0 && (n < 64<<10 || n > 1<<30) {
		bad("flightRecorder.maxBytes", fmt.Sprintf("%d must be 0 or from 65536 to 1073741824", n))
	}
	w.OfflineStart.check(bad)
	if _, err := pullaccess.ParseAllowlist(w.Images.NeverRemove); err != nil {
		bad("images.neverRemove", err.Error())
	}
	if e := w.ControlSocket.Enabled; e != nil && !*e && w.ControlSocket.Path != "" {
		bad("controlSocket.path", "has no effect with controlSocket.enabled: false: remove one of them")
	}
}

// Limits returns the values of after, maxAge and maxSize (bytes). The values must be valid: the method check
// reports each that is not.
func (o *WherryOffline) Limits() (after, maxAge time.Duration, maxBytes int64) {
	after, _ = time.ParseDuration(o.After)
	maxAge, _ = time.ParseDuration(o.MaxAge)
	size, _ := resource.ParseQuantity(o.MaxSize)
	return after, maxAge, size.Value()
}

func (o *WherryOffline) check(bad func(path, text string)) {
	for _, d := range []struct {
		path, value string
		least, most time.Duration
	}{{"offlineStart.after", o.After, time.Second, 10 * time.Minute}, {"offlineStart.maxAge", o.MaxAge, time.Minute, 87600 * time.Hour}} {
		if got, err := time.ParseDuration(d.value); err != nil || got < d.least || got > d.most {
			bad(d.path, fmt.Sprintf("%q must be a duration from %v to %v, for example 90s or 48h", d.value, d.least, d.most))
		}
	}
	if size, err := resource.ParseQuantity(o.MaxSize); err != nil || size.Value() < 1<<20 || size.Value() > 1<<30 {
		bad("offlineStart.maxSize", fmt.Sprintf("%q must be a quantity from 1Mi to 1Gi", o.MaxSize))
	}
	if !o.Enabled && o.KeyFile != "" {
		bad("offlineStart.keyFile", "has no effect without offlineStart.enabled: true: set it, or remove the field")
	}
}

// WherryDoc returns the content of docs/wherry-config.md.
func WherryDoc() string {
	var b strings.Builder
	b.WriteString("# Wherry's own settings\n\n" +
		"<!-- Made from the table in internal/edge/config/wherry.go: go test ./internal/edge/config -run TestWherryDoc -update -->\n\n" +
		"Wherry takes the flags and the `KubeletConfiguration` of Kubernetes' kubelet. Settings for which Kubernetes has no field are in\n" +
		"a file of their own, which `--wherry-config` names. A field that is not in the file has its default, and without a file all fields\n" +
		"do. Unknown fields, repeated fields and bad values are errors. For example:\n\n" +
		"```yaml\napiVersion: " + WherryAPIVersion + "\nkind: " + WherryKind + "\nserver:\n  reviewQPS: 50\n```\n\n" +
		"| field | default | meaning |\n|---|---|---|\n")
	for _, f := range wherryFields {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.path, f.defaults, f.doc)
	}
	return b.String()
}
