package integration

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

var httpClient = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// fetch sends a GET request until the answer is 200, and returns the body. It fails the test if that takes too long.
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

// insecure sends a GET request without verifying the server's certificate. token is a bearer token; "": none.
func insecure(url, token string) (status int, body string, err error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return do(trusting(), req)
}

// trusting returns a client that does not verify the server's certificate.
func trusting() *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
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
