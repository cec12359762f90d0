// Command applets implements those parts of curl, nc, nmeter, printenv and sh that Kubernetes' tests use in their containers and that
// Debian's busybox lacks. The name under which the program is called selects the applet. The program is static, so that any image can
// contain it.
//
//	curl [-gqskI] [-X METHOD] [-H HEADER] [-d DATA] [-o FILE] [-w FORMAT] [-m SECONDS] [--connect-timeout SECONDS] URL
//	nc   [-utvzN] [-w SECONDS] HOST PORT
//	nmeter [-d0] %3t: the time of day, once
//	sh   busybox's sh, except for `sh -c env`, because Debian's sh drops names such as data-1 from the environment, and for nc in
//	     the script of -c, because Debian's sh prefers its own nc, which does not support UDP
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	run := curl
	switch filepath.Base(os.Args[0]) {
	case "nc":
		run = nc
	case "nmeter":
		run = nmeter
	case "sh":
		run = sh
	case "printenv":
		run = printenv
	}
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: (%d) %v\n", filepath.Base(os.Args[0]), code, err)
	}
	os.Exit(code)
}

// options splits the arguments of an applet into flags and the rest. valued lists the one-letter flags that take a value. Several
// one-letter flags may be written together.
func options(args []string, valued string) (flags map[string][]string, rest []string) {
	flags = map[string][]string{}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case strings.HasPrefix(arg, "--"):
			name, value, given := strings.Cut(arg[2:], "=")
			if !given && strings.Contains(" connect-timeout interface max-time header data request output write-out ", " "+name+" ") && i+1 < len(args) {
				i++
				value = args[i]
			}
			flags[name] = append(flags[name], value)
		case len(arg) > 1 && arg[0] == '-':
			for at, letter := range arg[1:] {
				if !strings.ContainsRune(valued, letter) {
					flags[string(letter)] = append(flags[string(letter)], "")
					continue
				}
				value := arg[at+2:]
				if value == "" && i+1 < len(args) {
					i++
					value = args[i]
				}
				flags[string(letter)] = append(flags[string(letter)], value)
				break
			}
		default:
			rest = append(rest, arg)
		}
	}
	return flags, rest
}

// first returns the value of the first of the names that is in flags. It returns false if flags has none of the names.
func first(flags map[string][]string, names ...string) (string, bool) {
	for _, name := range names {
		if values, ok := flags[name]; ok {
			return values[0], true
		}
	}
	return "", false
}

func seconds(value string, fallback time.Duration) time.Duration {
	if n, err := strconv.ParseFloat(value, 64); err == nil {
		return time.Duration(n * float64(time.Second))
	}
	return fallback
}

// These are the exit codes of curl.
const (
	badUsage, noHost, noConnection, httpError, timedOut = 2, 6, 7, 22, 28
)

func curl(args []string) (int, error) {
	flags, urls := options(args, "XHdowm")
	if len(urls) != 1 {
		return badUsage, fmt.Errorf("expected one URL, got %q", urls)
	}
	url := urls[0]
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	request, err := newRequest(flags, url)
	if err != nil {
		return badUsage, err
	}
	limit, _ := first(flags, "m", "max-time")
	connect, _ := first(flags, "connect-timeout")
	ctx, cancel := context.WithTimeout(context.Background(), seconds(limit, time.Hour))
	defer cancel()
	dialer := &net.Dialer{Timeout: seconds(connect, 5*time.Minute)}
	if from, ok := first(flags, "interface"); ok { // the tests name an address, not an interface
		ip := net.ParseIP(from)
		if ip == nil {
			return badUsage, fmt.Errorf("--interface %q is no IP address", from)
		}
		dialer.LocalAddr = &net.TCPAddr{IP: ip}
	}
	transport := &http.Transport{
		DialContext:       dialer.DialContext,
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // every test uses the flag -k, which turns off the verification
	}
	response, err := transport.RoundTrip(request.WithContext(ctx)) // RoundTrip follows no redirects, as curl without -L
	format, report := first(flags, "w", "write-out")
	if err != nil {
		if report {
			fmt.Print(strings.NewReplacer("%{http_code}", "000", `\n`, "\n").Replace(format))
		}
		return codeOf(err), err
	}
	defer func() { _ = response.Body.Close() }()
	if err := write(flags, response); err != nil {
		return codeOf(err), err
	}
	if report {
		fmt.Print(strings.NewReplacer("%{http_code}", strconv.Itoa(response.StatusCode), `\n`, "\n").Replace(format))
	}
	if _, fail := first(flags, "f", "fail"); fail && response.StatusCode >= 400 {
		return httpError, errors.New(response.Status)
	}
	return 0, nil
}

func newRequest(flags map[string][]string, url string) (*http.Request, error) {
	method, body := http.MethodGet, io.Reader(nil)
	if data, ok := first(flags, "d", "data"); ok {
		method, body = http.MethodPost, strings.NewReader(data)
	}
	if _, ok := first(flags, "I", "head"); ok {
		method = http.MethodHead
	}
	if m, ok := first(flags, "X", "request"); ok {
		method = m
	}
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return nil, err
	}
	for _, header := range append(flags["H"], flags["header"]...) {
		name, value, _ := strings.Cut(header, ":")
		request.Header.Add(name, strings.TrimSpace(value))
	}
	return request, nil
}

func write(flags map[string][]string, response *http.Response) error {
	out := io.Writer(os.Stdout)
	if path, ok := first(flags, "o", "output"); ok {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		out = file
	}
	if _, head := first(flags, "I", "head", "i", "include"); head {
		fmt.Fprintf(out, "%s %s\r\n", response.Proto, response.Status)
		if err := response.Header.Write(out); err != nil {
			return err
		}
		fmt.Fprint(out, "\r\n")
	}
	_, err := io.Copy(out, response.Body)
	return err
}

func codeOf(err error) int {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return noHost
	case errors.As(err, &timeout) && timeout.Timeout():
		return timedOut
	}
	return noConnection
}

func printenv(names []string) (int, error) {
	code := 0
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			fmt.Println(value)
		} else {
			code = 1
		}
	}
	if len(names) == 0 {
		fmt.Println(strings.Join(os.Environ(), "\n"))
	}
	return code, nil
}

func sh(args []string) (int, error) {
	argv := append([]string{os.Args[0]}, args...)
	if slices.Equal(args, []string{"-c", "env"}) {
		argv = []string{"env"}
	} else if at := slices.Index(args, "-c"); at >= 0 && at+1 < len(args) {
		argv[at+2] = regexp.MustCompile(`(^|[|;&(]\s*)nc `).ReplaceAllString(args[at+1], "${1}/bin/nc ")
	}
	return 127, syscall.Exec("/bin/busybox", argv, os.Environ())
}

func nc(args []string) (int, error) {
	flags, rest := options(args, "w")
	if _, listen := flags["l"]; listen {
		return listenUnix(flags, rest)
	}
	if len(rest) != 2 {
		return 1, fmt.Errorf("expected host and port, got %q", rest)
	}
	network := "tcp"
	if _, udp := flags["u"]; udp {
		network = "udp"
	}
	value, _ := first(flags, "w")
	idle := seconds(value, time.Hour)
	conn, err := net.DialTimeout(network, net.JoinHostPort(rest[0], rest[1]), idle)
	if err != nil {
		return 1, err
	}
	if _, verbose := flags["v"]; verbose {
		fmt.Fprintf(os.Stderr, "Connection to %s %s port [%s] succeeded!\n", rest[0], rest[1], network)
	}
	if _, scan := flags["z"]; scan {
		return 0, conn.Close()
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	}()
	// As in nc, -w limits how long connecting may take, and also how long the applet waits for data.
	buffer := make([]byte, 64<<10)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(idle))
		n, err := conn.Read(buffer)
		_, _ = os.Stdout.Write(buffer[:n])
		if err != nil {
			return 0, conn.Close()
		}
	}
}

// listenUnix makes a Unix socket (nc -lU path) and prints what its first client sends.
func listenUnix(flags map[string][]string, rest []string) (int, error) {
	if _, unix := flags["U"]; !unix || len(rest) != 1 {
		return 1, fmt.Errorf("-l: only a Unix socket can listen (-lU path), got %q", rest)
	}
	l, err := net.Listen("unix", rest[0])
	if err != nil {
		return 1, err
	}
	conn, err := l.Accept()
	if err != nil {
		return 1, err
	}
	_, err = io.Copy(os.Stdout, conn)
	return 0, errors.Join(err, conn.Close(), l.Close())
}

// nmeter prints the time of day with milliseconds, the only function of nmeter that the tests use.
func nmeter(args []string) (int, error) {
	_, rest := options(args, "d")
	if len(rest) != 1 || rest[0] != "%3t" {
		return 2, fmt.Errorf("%q: only %%3t is known", args)
	}
	fmt.Println(time.Now().Format("15:04:05.000"))
	return 0, nil
}
