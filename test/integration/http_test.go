package integration

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

var httpClient = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// fetch gets a URL, and fails the test if there is no answer.
func (s *space) fetch(url string) (body string) {
	s.Helper()
	s.eventually("answer of "+url, func() error {
		status, b, err := request(http.MethodGet, url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, b)
		}
		body = b
		return err
	})
	return body
}

func (s *space) post(url string) {
	s.Helper()
	if status, body, err := request(http.MethodPost, url); err != nil || status != http.StatusOK {
		s.Fatalf("POST %s: %d %s %v", url, status, body, err)
	}
}

func request(method, url string) (status int, body string, err error) {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return 0, "", err
	}
	return do(httpClient, req)
}

// insecure sends a request to a server whose certificate cannot be verified, with a bearer token if token is set.
func insecure(url, token string) (status int, body string, err error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return do(client, req)
}

func do(client *http.Client, req *http.Request) (status int, body string, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}
