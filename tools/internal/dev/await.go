package dev

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// These are the parts of Kubernetes objects that this package reads.
type (
	node struct {
		Status struct {
			Conditions []condition `json:"conditions"`
		} `json:"status"`
	}
	condition struct {
		Type, Status, Reason, Message string
	}
	podList struct {
		Items []struct {
			Metadata struct {
				Name              string `json:"name"`
				DeletionTimestamp string `json:"deletionTimestamp"`
			} `json:"metadata"`
			Status struct {
				Phase      string      `json:"phase"`
				PodIP      string      `json:"podIP"`
				Conditions []condition `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
)

// await calls look until done is true, and returns an error after the time bound. Every few seconds it prints what it waits for (what) and
// the last state.
func (e *Env) await(ctx context.Context, what string, bound time.Duration, look func(context.Context) (done bool, state string)) error {
	deadline, report := time.Now().Add(bound), time.Now().Add(5*time.Second)
	for {
		done, state := look(ctx)
		if done {
			return nil
		}
		if _, running := proc.Find(e.pidFile("node")); !running {
			return fmt.Errorf("wait for %s: the node agent has ended; last lines of %s:\n%s",
				what, e.path("logs", "node.log"), lastLines(e.path("logs", "node.log"), 12))
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for %s: not in %s: %s; last lines of %s:\n%s",
				what, bound, state, e.path("logs", "node.log"), lastLines(e.path("logs", "node.log"), 12))
		}
		if time.Now().After(report) {
			e.say("waiting for %s: %s", what, state)
			report = time.Now().Add(5 * time.Second)
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

func (e *Env) awaitNode(ctx context.Context, s *state) error {
	return e.await(ctx, "node "+s.NodeName, 2*time.Minute, func(ctx context.Context) (bool, string) {
		out, err := e.kubectl(ctx, "get", "node", s.NodeName, "-o", "json")
		if err != nil {
			return false, "it has not registered: " + firstLine(err.Error())
		}
		var n node
		if err := json.Unmarshal([]byte(out), &n); err != nil {
			return false, err.Error()
		}
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" {
				return c.Status == "True", fmt.Sprintf("Ready is %s: %s: %s", c.Status, c.Reason, c.Message)
			}
		}
		return false, "no Ready condition yet"
	})
}

// runExample applies examples/web and waits until its pods are Ready. If the containers are real, it also sends a request to the IP of a
// pod.
func (e *Env) runExample(ctx context.Context, s *state) error {
	if _, err := e.kubectl(ctx, "apply", "-f", e.Checkout+"/examples/web"); err != nil {
		return err
	}
	e.say("example applied: examples/web")
	var ip string
	err := e.await(ctx, "the example's pods", 2*time.Minute, func(ctx context.Context) (bool, string) {
		out, err := e.kubectl(ctx, "get", "pods", "-l", "app=web", "-o", "json")
		if err != nil {
			return false, firstLine(err.Error())
		}
		var pods podList
		if err := json.Unmarshal([]byte(out), &pods); err != nil {
			return false, err.Error()
		}
		running, states := 0, []string{}
		for _, pod := range pods.Items {
			if pod.Metadata.DeletionTimestamp != "" {
				continue
			}
			states = append(states, pod.Metadata.Name+" "+pod.Status.Phase)
			if pod.Status.Phase == "Running" && isTrue(pod.Status.Conditions, "Ready") {
				running, ip = running+1, pod.Status.PodIP
			}
		}
		return running >= 2, strings.Join(states, ", ")
	})
	if err != nil {
		return err
	}
	if s.Runtime == runtimeSimulated {
		e.say("the example's pods run (simulated: nothing listens on %s)", ip)
		return nil
	}
	if err := e.askExample(ctx, "http://"+ip+":8080/"); err != nil || !s.Proxy {
		return err
	}
	service, err := e.kubectl(ctx, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		return err
	}
	return e.askExample(ctx, "http://"+service+"/ (the Service)")
}

// askExample sends requests to a URL until it gets an answer, and prints the answer. The text what is the URL, optionally followed by a
// space and a remark for the messages.
func (e *Env) askExample(ctx context.Context, what string) error {
	var body string
	url, _, _ := strings.Cut(what, " ")
	err := e.await(ctx, what, 2*time.Minute, func(ctx context.Context) (bool, string) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err.Error()
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // unlike the default transport, it ignores proxy settings in the environment
		response, err := client.Do(request)
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		data, err := io.ReadAll(io.LimitReader(response.Body, 4096))
		body = string(data)
		return err == nil && response.StatusCode == http.StatusOK, response.Status
	})
	if err != nil {
		return err
	}
	e.say("reached the example at %s:\n%s", what, indent(body))
	return nil
}

func isTrue(conditions []condition, name string) bool {
	for _, c := range conditions {
		if c.Type == name {
			return c.Status == "True"
		}
	}
	return false
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func indent(s string) string {
	return "          " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n          ")
}
