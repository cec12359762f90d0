package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/wherry-node/wherry/internal/proof/browser"
)

// crashSpec is a pod whose container writes a line and ends with exit code 3, again and again.
const crashSpec = `containers: [{name: main, image: $busybox, command: [sh, -c, 'echo cannot read /etc/app.conf; sleep 1; exit 3']}]`

// hasRestarted reports whether the first container of a pod has restarted.
func hasRestarted(p *v1.Pod) bool {
	return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount > 0
}

// console starts `wherry console --node` with a kubeconfig, and returns its link.
func (s *space) console(kubeconfig, node string) (link string) {
	s.Helper()
	log := filepath.Join(s.env.dir, s.name+"-console.log")
	p, err := start(log, s.env.wherry, "console", "--node", node, "--kubeconfig", kubeconfig)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(p.stop)
	s.eventually("the link of the console", func() error {
		if err := p.alive(); err != nil {
			return fatal{err}
		}
		text, err := os.ReadFile(log)
		if link = regexp.MustCompile(`http://127\.0\.0\.1:\d+/open/\w+`).FindString(string(text)); link == "" {
			err = errors.Join(err, fmt.Errorf("it has said %q", text))
		}
		return err
	})
	return link
}

// account creates a service account and returns its token and a kubeconfig with it.
func (s *space) account(name string) (token, kubeconfig string) {
	s.Helper()
	s.kubectl("create", "serviceaccount", name)
	token = strings.TrimSpace(s.kubectl("create", "token", name))
	cfg, err := clientcmd.LoadFromFile(s.env.kubeconfig())
	if err != nil {
		s.Fatal(err)
	}
	for _, c := range cfg.Contexts {
		c.AuthInfo = name
	}
	cfg.AuthInfos = map[string]*api.AuthInfo{name: {Token: token}}
	kubeconfig = filepath.Join(s.env.dir, s.name+"-"+name+".kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, kubeconfig); err != nil {
		s.Fatal(err)
	}
	return token, kubeconfig
}

// TestConsoleThroughTheAPIServer looks at the console of a real node as a user of the cluster does: with `wherry console --node`.
func TestConsoleThroughTheAPIServer(t *testing.T) {
	s := newSpace(t)
	s.pod("crash", crashSpec)
	s.pod("well", `containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	link := s.console(s.env.kubeconfig(), s.env.node.Name)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute}
	get := func(url string) *http.Response {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	if resp := get(link); resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("the link: %s %v", resp.Status, resp.Header)
	}
	base, _, _ := strings.Cut(link, "/open/")
	s.ready("well")
	stream := bufio.NewReader(get(base + "/console/stream?detail=" + s.name + "/crash").Body)
	for all := ""; !containsAll(all, []string{`"row/`, s.name, `"detail/` + s.name + `/crash/pod"`, `"lease"`, `"events":[`}); {
		line, err := stream.ReadString('\n')
		if all += line; err != nil {
			t.Fatalf("the stream ends with %v after %d bytes: %s", err, len(all), all[:min(len(all), 2000)])
		}
	}
	s.until("crash", "restarted", hasRestarted)
	resp := get(base + "/console/logs/" + s.name + "/crash/main?previous=true")
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "cannot read /etc/app.conf") {
		t.Errorf("the logs: %s %v: %s", resp.Status, err, text)
	}
	for _, path := range []string{"/pods", "/api/v1/pods", "/console/../../api/v1/secrets"} {
		if resp := get(base + path); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// TestConsoleOfANodeInABrowser clicks through the console of a real node in a real browser.
func TestConsoleOfANodeInABrowser(t *testing.T) {
	s := newSpace(t)
	tab := browser.Open(t, 1360, 900)
	s.pod("crash", crashSpec)
	s.pod("busy", `containers: [{name: main, image: $busybox, command: [sh, -c, 'while :; do echo tick; sleep 1; done'], resources: {limits: {cpu: 200m, memory: 32Mi}}}]`)
	s.pod("reader", `{containers: [{name: main, image: $busybox, volumeMounts: [{name: conf, mountPath: /conf}]}], volumes: [{name: conf, configMap: {name: words}}]}`)
	s.until("crash", "restarted", hasRestarted)
	tab.Go(s.console(s.env.kubeconfig(), s.env.node.Name))
	tab.Until("the node", `document.title.startsWith("`+s.env.node.Name+` ")`)
	row := func(name string) string {
		return `[...document.querySelectorAll("a.name")].find((a) => a.textContent === "` + s.name + `/` + name + `")`
	}
	for name, sign := range map[string]string{"crash": "CrashLoop", "reader": "ConfigMapMissing", "busy": "ready"} {
		tab.Until("pod "+name+" with "+sign, row(name)+`?.closest("tr").innerHTML.includes("`+sign+`")`)
	}
	tab.CheckAccess("the pods")

	tab.Eval(row("busy")+`.click()`, nil)
	tab.Until("live logs", `document.querySelector("pre.logs")?.textContent.split("tick").length > 3`)
	var before int
	tab.Eval(`document.querySelector("pre.logs").textContent.length`, &before)
	tab.Until("more logs as they are written", fmt.Sprintf(`document.querySelector("pre.logs").textContent.length > %d`, before))
	tab.Until("use as plots with their limits", `[...document.querySelectorAll("svg.plot")].filter((p) => p.querySelector("line.limit") && p.querySelector("polyline")).length === 2`)
	tab.CheckAccess("a pod that runs")

	tab.Eval(`location.hash = "#/pod/`+s.name+`/crash"`, nil)
	tab.Until("the answer", `document.querySelector(".answer.trouble")?.innerText.includes("exit code 3")`)
	tab.Until("the last output as evidence", `document.querySelector(".answer").innerText.includes("cannot read /etc/app.conf")`)

	tab.Eval(`location.hash = "#/pod/`+s.name+`/crsh"`, nil)
	tab.Until("an unknown pod, with the pod that is meant", `document.querySelector("main").innerText.includes("not on this node") && [...document.querySelectorAll("main a")].some((a) => a.textContent === "`+s.name+`/crash")`)
	tab.Until("the command that looks for it elsewhere", `document.querySelector("main").innerText.includes("wherry why -n `+s.name+` crsh")`)
	tab.Eval(`location.hash = "#/pod/`+s.name+`/a%60reboot%60"`, nil)
	tab.Until("no command with what a link chose", `document.querySelector("main").innerText.includes("a`+"`reboot`"+` is not on this node") && !document.querySelector("main").innerText.includes("wherry why")`)

	tab.Eval(`location.hash = "#/events"`, nil)
	tab.Until("an event that went to the API server", `document.querySelector("main").innerText.includes("Pod `+s.name+`/crash")`)
	tab.CheckAccess("the events")
	tab.Eval(`location.hash = "#/node"`, nil)
	tab.Until("the node's lease and pressure", `/renewed .* ago/.test(document.querySelector("main").innerText) && document.querySelector("main").innerText.includes("memory.available")`)
	if len(tab.Problems) > 0 {
		t.Errorf("the page had problems: %v", tab.Problems)
	}
}

// TestConsoleWithoutRights: a browser that may not see the node gets the commands that allow it. After these commands it sees the console.
func TestConsoleWithoutRights(t *testing.T) {
	s := newSpace(t)
	token, kubeconfig := s.account("stranger")
	page := func() (status int, body string) {
		req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/console/", s.env.node.port), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Accept", "text/html")
		status, body, err = do(trusting(), req)
		if err != nil {
			t.Fatal(err)
		}
		return status, body
	}
	var body string
	s.eventually("the refusal", func() (err error) { // a review of the token may fail on a busy machine
		var status int
		if status, body = page(); status != http.StatusForbidden {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		return err
	})
	commands := regexp.MustCompile(`<code>kubectl ([^<]*)</code>`).FindAllStringSubmatch(body, -1)
	if len(commands) != 2 || !strings.Contains(body, "system:serviceaccount:"+s.name+":stranger") {
		t.Fatalf("the page for a stranger: %s", body)
	}
	for _, c := range commands {
		args := strings.Fields(strings.ReplaceAll(c[1], "wherry-console", s.name)) // a name of this test, because the objects belong to the whole cluster
		s.kubectl(args...)
		t.Cleanup(func() { s.kubectl("delete", args[1], args[2]) })
	}
	s.eventually("the console for a user with the right", func() (err error) { // the node remembers its refusal for a while
		if status, body := page(); status != http.StatusOK || !strings.Contains(body, "<script") {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		return err
	})

	// the right to get nodes/console is none to use the API server's proxy
	link := s.console(kubeconfig, s.env.node.Name)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute}
	if resp, err := client.Get(link); err != nil {
		t.Fatal(err)
	} else {
		_ = resp.Body.Close()
	}
	base, _, _ := strings.Cut(link, "/open/")
	req, err := http.NewRequest(http.MethodGet, base+"/console/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	status, text, err := do(client, req)
	if err != nil || status != http.StatusForbidden || !containsAll(text, []string{"nodes/proxy", "kubectl create clusterrole", "stranger"}) {
		t.Errorf("through the API server: %d %v: %s", status, err, text)
	}
}

// TestWhyOfACluster asks for pods of a real node as users do: kubectl wherry why.
func TestWhyOfACluster(t *testing.T) {
	s := newSpace(t)
	plugins := t.TempDir()
	if err := os.Symlink(s.env.wherry, filepath.Join(plugins, "kubectl-wherry")); err != nil {
		t.Fatal(err)
	}
	why := func(kubeconfig string, args ...string) (string, string, error) {
		cmd := command(s.env.kubectl, append([]string{"wherry", "why", "--kubeconfig", kubeconfig, "-n", s.name}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+s.env.dir, "KUBECONFIG=", "PATH="+plugins+":"+os.Getenv("PATH"))
		return output(cmd)
	}
	s.pod("crash", crashSpec)
	s.pod("reader", `{containers: [{name: main, image: $busybox, volumeMounts: [{name: conf, mountPath: /conf}]}], volumes: [{name: conf, configMap: {name: words}}]}`)
	s.pod("nowhere", `{containers: [{name: main, image: $busybox}], nodeSelector: {no: such-node}}`)
	s.until("crash", "restarted", hasRestarted)
	for name, wanted := range map[string][]string{
		"crash":   {`ended with exit code 3`, `CrashLoop`, `last output  cannot read /etc/app.conf`, `kubectl logs -n ` + s.name + ` crash -c main --previous`},
		"reader":  {`ConfigMapMissing`, `configmap "words" not found`, `next `},
		"nowhere": {`Unscheduled`, `didn't match Pod's node affinity/selector`},
	} {
		s.eventually("kubectl wherry why "+name, func() error {
			out, errOut, err := why(s.env.kubeconfig(), name)
			if err == nil && (!containsAll(out, wanted) || strings.Count(out, "\n") > 12) {
				err = fmt.Errorf("it says:\n%s", out)
			}
			if err != nil {
				err = fmt.Errorf("%w: %s", err, errOut)
			}
			return err
		})
	}
	s.describes("pod", "reader", `FailedMount.*configmap "words" not found`)
	if _, errOut, err := why(s.env.kubeconfig(), "crsh"); err == nil || !containsAll(errOut, []string{"there is no pod", s.name + "/crash"}) {
		t.Errorf("an unknown pod: %v: %s", err, errOut)
	}
	_, stranger := s.account("stranger")
	if _, errOut, err := why(stranger, "crash"); err == nil || !containsAll(errOut, []string{"you may not read pod", "kubectl create rolebinding"}) {
		t.Errorf("a user without rights: %v: %s", err, errOut)
	}
	s.kubectl("create", "rolebinding", "view", "--clusterrole=view", "--serviceaccount="+s.name+":stranger")
	s.eventually("the right to read pods", func() error {
		_, errOut, err := why(stranger, "crash")
		if err == nil || !containsAll(errOut, []string{"you may not ask node", "kubectl create clusterrole ask-nodes --verb=get --resource=nodes/proxy"}) {
			return fmt.Errorf("%v: %s", err, errOut)
		}
		return nil
	})
}
