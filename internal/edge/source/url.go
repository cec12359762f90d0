package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// urlTimeout bounds one request.
const urlTimeout = 10 * time.Second

// URL reads a manifest from a web server: KubeletConfiguration.staticPodURL. Only a complete and correct answer can
// remove a pod.
type URL struct {
	Config
	URL    string
	Header map[string][]string
	Period time.Duration
	// Transport sends the requests.
	Transport http.RoundTripper
}

// Run requests the manifest periodically until ctx ends. Until the first complete answer, nobody knows which pods this
// source wants, so no pod is stopped as unwanted.
func (u *URL) Run(ctx context.Context) error {
	s := &poll{URL: u, held: newManifests(u.Config, pod.SourceURL), client: &http.Client{Transport: u.Transport, Timeout: urlTimeout, CheckRedirect: u.redirect}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		s.ask(ctx)
		if s.held.satisfied() {
			s.held.publish(s.whole)
		}
		timer.Reset(u.Period)
	}
}

// maxRedirects bounds the redirects of one request.
const maxRedirects = 10

// redirect allows a redirect. net/http sends the headers of the first request along. They may be credentials, so redirect removes
// these headers and the Referer if the new URL has another host, port or scheme.
func (u *URL) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("the server redirects more than %d times", maxRedirects)
	}
	if first := via[0].URL; req.URL.Scheme == first.Scheme && req.URL.Host == first.Host {
		return nil
	}
	for name := range u.Header {
		req.Header.Del(name)
	}
	for _, name := range []string{"Authorization", "Cookie", "Referer"} {
		req.Header.Del(name)
	}
	return nil
}

type poll struct {
	*URL
	held   *manifests
	client *http.Client
	etag   string // ETag of the last answer that was used
	sum    [sha256.Size]byte
	whole  bool   // the server has given a complete answer; errors in it put the source in doubt (see Config.Doubt)
	failed string // the last error that was logged
}

func (s *poll) ask(ctx context.Context) {
	data, etag, err := s.get(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		if s.failed != err.Error() {
			s.failed = err.Error()
			s.Log.Error("cannot read the static pods' URL; the pods that were read before stay", "url", redacted(s.URL.URL), "err", err)
		}
		return
	}
	if s.failed != "" {
		s.failed = ""
		s.Log.Info("the static pods' URL is readable again", "url", redacted(s.URL.URL))
	}
	if data == nil {
		return
	}
	s.etag = etag
	sum := sha256.Sum256(data)
	if sum == s.sum {
		return
	}
	s.sum = sum
	s.held.put(s.URL.URL, data)
	s.whole = true
	s.held.publish(s.whole)
}

// get requests the manifest. It returns nil data if the server answers that nothing has changed.
func (s *poll) get(ctx context.Context) (data []byte, etag string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL.URL, nil)
	if err != nil {
		return nil, "", errors.New("not a URL; write staticPodURL as https://host/path")
	}
	for k, values := range s.Header {
		for _, v := range values {
			req.Header.Add(k, v)
		}
	}
	if s.etag != "" {
		req.Header.Set("If-None-Match", s.etag)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) { // take only the cause, because url.Error repeats the URL, which may contain secrets
			err = ue.Err
		}
		return nil, "", err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode == http.StatusNotModified && s.etag != "" {
		return nil, "", nil
	}
	if resp.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("the server answers %s", resp.Status)
	}
	data, err = io.ReadAll(io.LimitReader(resp.Body, manifest.MaxBytes+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("the answer is cut short: %w", err)
	case len(data) == 0:
		return nil, "", errors.New("the answer is empty; serve a PodList without items if there is to be no pod")
	}
	return data, resp.Header.Get("ETag"), nil
}

// redacted returns a URL without the parts that may be secret.
func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	if u.RawQuery != "" {
		u.RawQuery = "..."
	}
	return u.Redacted()
}
