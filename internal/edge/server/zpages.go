package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// zGroup is the API group of the answers of /flagz and /statusz. The variable zVersions lists its versions, the newest first.
const zGroup = "config.k8s.io"

var zVersions = []string{"v1beta1", "v1alpha1"}

// component is the name of this process in the answers of /flagz and /statusz. Clients expect this name from a kubelet.
const component = "kubelet"

// flagz is the object in the answer of /flagz.
type flagz struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        zMeta             `json:"metadata"`
	Flags           map[string]string `json:"flags,omitempty"`
}

// statusz is the object in the answer of /statusz.
type statusz struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        zMeta       `json:"metadata"`
	StartTime       metav1.Time `json:"startTime"`
	UptimeSeconds   int64       `json:"uptimeSeconds"`
	GoVersion       string      `json:"goVersion"`
	BinaryVersion   string      `json:"binaryVersion"`
	Paths           []string    `json:"paths"`
}

type zMeta struct {
	Name string `json:"name"`
}

// serveFlagz answers /flagz: the flags in effect, one per line, or as an object.
func (s *Server) serveFlagz(w http.ResponseWriter, r *http.Request) {
	f := flagz{Metadata: zMeta{component}, Flags: s.cfg.Sources.Flags()}
	serveZ(w, r, "Flagz", &f.TypeMeta, &f, func() {
		writeTitle(w, "flagz")
		for _, name := range slices.Sorted(maps.Keys(f.Flags)) {
			fmt.Fprintf(w, "%s=%s\n", name, f.Flags[name])
		}
	})
}

// serveStatusz answers /statusz: start time, uptime, versions and paths.
func (s *Server) serveStatusz(w http.ResponseWriter, r *http.Request) {
	src := &s.cfg.Sources
	z := statusz{
		Metadata: zMeta{component}, StartTime: metav1.Time{Time: src.Started}, GoVersion: runtime.Version(),
		BinaryVersion: strings.TrimPrefix(src.Version, "v"), Paths: s.paths(),
	}
	up := max(0, time.Since(src.Started))
	z.UptimeSeconds = int64(up / time.Second)
	serveZ(w, r, "Statusz", &z.TypeMeta, &z, func() {
		writeTitle(w, "statusz")
		fmt.Fprintf(w, "Started: %s\n", src.Started.UTC().Format(time.UnixDate))
		fmt.Fprintf(w, "Up: %d hr %02d min %02d sec\n", up/time.Hour, up%time.Hour/time.Minute, up%time.Minute/time.Second)
		fmt.Fprintf(w, "Go version: %s\n", z.GoVersion)
		fmt.Fprintf(w, "Binary version: %s\n", z.BinaryVersion)
		fmt.Fprintf(w, "Paths: %s\n", strings.Join(z.Paths, " "))
	})
}

// paths lists the first elements of all paths that the server has.
func (s *Server) paths() []string {
	set := map[string]bool{}
	for _, rt := range append(s.openRoutes(), s.guardedRoutes()...) {
		first, _, _ := strings.Cut(rt.pattern[strings.IndexByte(rt.pattern, '/')+1:], "/")
		if first != "" && !strings.HasPrefix(first, "{") {
			set["/"+first] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// serveZ answers with text, or with an object if the client accepts one of its versions:
// Accept: application/json;g=config.k8s.io;v=v1beta1;as=Statusz.
func serveZ(w http.ResponseWriter, r *http.Request, kind string, head *metav1.TypeMeta, object any, text func()) {
	media, version, ok := negotiateZ(r.Header.Values("Accept"), kind)
	switch {
	case !ok:
		http.Error(w, fmt.Sprintf("only text/plain, and application/json or application/yaml with ;g=%s;v=%s;as=%s are served here", zGroup, zVersions[0], kind), http.StatusNotAcceptable)
		return
	case version == "":
		writeText(w)
		text()
		return
	}
	*head = metav1.TypeMeta{Kind: kind, APIVersion: zGroup + "/" + version}
	body, err := json.Marshal(object)
	if err == nil && media == "application/yaml" {
		body, err = yaml.JSONToYAML(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if version != zVersions[0] {
		w.Header().Set("Warning", fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`, strings.ToLower(kind)))
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // an error means that the client is gone
}

// negotiateZ returns the first media type in the Accept headers that the page supports, and the API version of the object to serve.
// For plain text both are "". ok is false if the page supports none of the media types; a client that names none gets plain text.
func negotiateZ(accept []string, kind string) (media, version string, ok bool) {
	asked := false
	for _, h := range accept {
		for part := range strings.SplitSeq(h, ",") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			asked = true
			media, p, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			switch media {
			case "text/plain", "text/*", "*/*":
				if p["as"] == "" {
					return "", "", true
				}
			case "application/json", "application/yaml":
				// mime.ParseMediaType makes the names of parameters lower case and keeps their values.
				if p["g"] == zGroup && p["as"] == kind && slices.Contains(zVersions, p["v"]) {
					return media, p["v"], true
				}
			}
		}
	}
	return "", "", !asked
}

func writeTitle(w http.ResponseWriter, what string) {
	fmt.Fprintf(w, "\n%s %s\nWarning: This endpoint is not meant to be machine parseable, has no formatting "+
		"compatibility guarantees and is for debugging purposes only.\n\n", component, what)
}
