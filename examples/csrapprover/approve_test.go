package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func approverOf(client *fake.Clientset) *approver {
	return &approver{csrs: client.CertificatesV1().CertificateSigningRequests(), nodes: client.CoreV1().Nodes()}
}

// conditionOf returns the condition of a request as "Type Reason", or "" if it has none.
func conditionOf(t *testing.T, client *fake.Clientset, name string) string {
	t.Helper()
	csr, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range csr.Status.Conditions {
		out = append(out, string(c.Type)+" "+c.Reason)
	}
	return strings.Join(out, ", ")
}

// A run with --once approves the request that fits and leaves all others as they are.
func TestOnce(t *testing.T) {
	t.Parallel()
	a := newAsk(t)
	right := named(a.signed(t), "right")
	denied := named(right, "denied")
	denied.Status.Conditions = []certv1.CertificateSigningRequestCondition{{Type: certv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Person"}}
	a.template.DNSNames = []string{"kubernetes.default.svc"}
	wrong := named(a.signed(t), "wrong")
	client := fake.NewClientset(nodeOne(), right, wrong, denied)
	var out bytes.Buffer
	if err := approverOf(client).once(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"right": "Approved ServingAddressesMatchNode", "wrong": "", "denied": "Denied Person"} {
		if got := conditionOf(t, client, name); got != want {
			t.Errorf("%s has the conditions %q, want %q", name, got, want)
		}
	}
	want := "right approved: User, groups, subject, usages and signature are those of node n1, and the Node has all that the request names (DNS names: 2, IP addresses: 2)\n" +
		"wrong left undecided: the Node has no address with the DNS name \"kubernetes.default.svc\"\n"
	if out.String() != want {
		t.Errorf("the output is\n%swant\n%s", &out, want)
	}
}

// A request that somebody else changes or deletes at the same moment is no error; what the API server refuses is one.
func TestAnswersToAnApproval(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	for name, c := range map[string]struct {
		answer error
		want   outcome
		fails  bool
	}{
		"approved":  {nil, approved, false},
		"conflict":  {apierrors.NewConflict(resource, "csr-1", errors.New("changed")), early, false},
		"deleted":   {apierrors.NewNotFound(resource, "csr-1"), settled, false},
		"forbidden": {apierrors.NewForbidden(resource, "csr-1", errors.New("no")), early, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			csr := newAsk(t).signed(t)
			client := fake.NewClientset(nodeOne(), csr)
			client.PrependReactor("update", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
				return c.answer != nil, nil, c.answer
			})
			got, _, err := approverOf(client).attempt(t.Context(), csr)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("outcome %d, error %v, want outcome %d", got, err, c.want)
			}
		})
	}
}

// lines collects log lines. It may be used concurrently.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), part)
}

// follow runs the loop in a bubble of virtual time until the test function returns.
func follow(t *testing.T, client *fake.Clientset, test func(t *testing.T, log *lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { newLoop(approverOf(client), slog.New(slog.NewTextHandler(log, nil))).run(ctx) })
		synctest.Wait()
		test(t, log)
	})
}

// The loop approves what is there at its start and what comes later, at once. It says once why it leaves a request, and never returns to it.
func TestLoop(t *testing.T) {
	t.Parallel()
	a := newAsk(t)
	first, second := named(a.signed(t), "first"), named(a.signed(t), "second")
	a.csr.Spec.Username = "jane"
	wrong := named(a.signed(t), "wrong")
	client := fake.NewClientset(nodeOne(), first, wrong)
	follow(t, client, func(t *testing.T, log *lines) {
		if _, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for name, want := range map[string]string{"first": "Approved ServingAddressesMatchNode", "second": "Approved ServingAddressesMatchNode", "wrong": ""} {
			if got := conditionOf(t, client, name); got != want {
				t.Errorf("%s has the conditions %q, want %q", name, got, want)
			}
		}
		wrong.Labels = map[string]string{"changed": "yes"}
		if _, err := client.CertificatesV1().CertificateSigningRequests().Update(t.Context(), wrong, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := log.count("csr=wrong"); got != 1 {
			t.Errorf("%d lines about the wrong request:\n%s", got, log.b.String())
		}
		if got := log.count("msg=Approved"); got != 2 {
			t.Errorf("%d lines about approvals:\n%s", got, log.b.String())
		}
	})
}

// A request whose Node has its addresses a moment later is approved then.
func TestAddressesThatComeLater(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(newAsk(t).signed(t))
	follow(t, client, func(t *testing.T, log *lines) {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), nodeOne(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryAfter - time.Second)
		synctest.Wait()
		if got := conditionOf(t, client, "csr-1"); got != "" {
			t.Errorf("before the second attempt: %s", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := conditionOf(t, client, "csr-1"); got != "Approved ServingAddressesMatchNode" {
			t.Errorf("after the second attempt: %q", got)
		}
		if log.count("there is no Node n1") != 1 || log.count("msg=Approved") != 1 {
			t.Errorf("the log is\n%s", log.b.String())
		}
	})
}

// Attempts at a request whose Node never fits end. A failing API server does not end them.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(newAsk(t).signed(t))
	var mu sync.Mutex
	reads, outage := 0, true
	client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if outage {
			return true, nil, apierrors.NewServiceUnavailable("outage")
		}
		reads++
		return false, nil, nil
	})
	follow(t, client, func(t *testing.T, log *lines) {
		time.Sleep(time.Hour)
		if got := log.count("csr="); got != 1 {
			t.Errorf("%d lines within an hour of outage:\n%s", got, log.b.String())
		}
		mu.Lock()
		outage = false
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if reads != maxAttempts {
			t.Errorf("%d attempts, want %d", reads, maxAttempts)
		}
		if log.count("Not approved yet") != 1 || log.count("no more attempts") != 1 || log.count("csr=") != 3 {
			t.Errorf("the log is\n%s", log.b.String())
		}
	})
}

// The loop keeps nothing of requests that are decided or gone, and begins anew with a request that is made again under the same name.
func TestWhatTheLoopRemembers(t *testing.T) {
	t.Parallel()
	l := newLoop(nil, slog.New(slog.DiscardHandler))
	one := newAsk(t).signed(t)
	l.Replace([]runtime.Object{one})
	k, _, ok := l.next(time.Now())
	if !ok || k.name != "csr-1" {
		t.Fatalf("next is %v, %t", k, ok)
	}
	l.note(k, refused, "why", nil)
	l.Replace([]runtime.Object{one})
	l.Apply("MODIFIED", one)
	if k, _, ok := l.next(time.Now()); ok {
		t.Errorf("%v again", k)
	}
	again := one.DeepCopy()
	again.UID = "uid-2"
	l.Apply("DELETED", one)
	l.Apply("ADDED", again)
	if k, _, ok := l.next(time.Now()); !ok || k.uid != "uid-2" {
		t.Errorf("next is %v, %t", k, ok)
	}
	again.Status.Certificate = []byte("signed")
	l.Apply("MODIFIED", again)
	if len(l.entries) != 0 {
		t.Errorf("%d entries are left", len(l.entries))
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]options{
		"":                           {},
		"--kubeconfig a.conf --once": {kubeconfig: "a.conf", once: true},
	} {
		flags := flag.NewFlagSet("csrapprover", flag.ContinueOnError)
		if got, err := parse(flags, strings.Fields(line)); err != nil || got != want {
			t.Errorf("%q is %+v, %v", line, got, err)
		}
	}
	flags := flag.NewFlagSet("csrapprover", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if _, err := parse(flags, []string{"now"}); err == nil {
		t.Error("an argument is accepted")
	}
}
