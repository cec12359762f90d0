package nodefacts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// defaultAddress returns the host's global address on the interface of the default route, or an invalid address if there is
// none. It uses package net only if the interface's first address is not global: package net lists every interface, a node has one
// interface per pod, and this function runs every few seconds.
func defaultAddress(procNet string, v6 bool) netip.Addr {
	if v6 {
		routes, err := os.Open(procNet + "/ipv6_route")
		if err != nil {
			return netip.Addr{}
		}
		defer routes.Close()
		addresses, err := os.Open(procNet + "/if_inet6")
		if err != nil {
			return netip.Addr{}
		}
		defer addresses.Close()
		return addressOfV6(addresses, defaultInterface(routes, true))
	}
	routes, err := os.Open(procNet + "/route")
	if err != nil {
		return netip.Addr{}
	}
	defer routes.Close()
	name := defaultInterface(routes, false)
	if name == "" {
		return netip.Addr{}
	}
	if a := primaryV4(name); a.IsGlobalUnicast() {
		return a
	}
	return anyV4(name)
}

// addressesFor is how long the list of all addresses stays valid. The list is long on a node with many pods.
const addressesFor = time.Minute

// addresses returns all addresses of the host, at most a minute old.
func (r *Real) addresses() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listed != nil && time.Since(r.listedAt) < addressesFor {
		return r.listed
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	r.listed, r.listedAt = make([]netip.Addr, 0, len(addrs)), time.Now()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			r.listed = append(r.listed, p.Addr().Unmap())
		}
	}
	return r.listed
}

// The name of the host is looked up again after nameFor, or after nameAgain if no name server answered. A lookup takes at most nameWithin.
const (
	nameFor    = time.Minute
	nameAgain  = 30 * time.Second
	nameWithin = 2 * time.Second
)

// addressesOfName returns the addresses of the host's name, from /etc/hosts or a name server. Only the first lookup is waited for, because the node
// should register with its right address. Later ones run beside the caller, who gets the last answer: a name server that does not answer must
// not delay the node's status or the start of a pod. If no server answers, the last answer stays: the node must not get another address because
// of that.
func (r *Real) addressesOfName() []netip.Addr {
	if r.Hostname == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.nameDue.IsZero()
	if r.lookup == nil {
		if time.Now().Before(r.nameDue) || r.closed {
			return r.named
		}
		ctx, cancel := context.WithTimeout(context.Background(), nameWithin)
		r.lookup = &nameLookup{cancel: cancel, done: make(chan struct{})}
		go r.lookUpName(ctx, r.lookup)
	}
	if first {
		done := r.lookup.done
		r.mu.Unlock()
		<-done
		r.mu.Lock()
	}
	return r.named
}

// nameLookup is a lookup of the host's name that has not ended.
type nameLookup struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the lookup has ended
}

// lookUpName looks the host's name up and stores the answer.
func (r *Real) lookUpName(ctx context.Context, l *nameLookup) {
	defer close(l.done)
	defer l.cancel()
	ask := r.Lookup
	if ask == nil {
		ask = net.DefaultResolver.LookupNetIP
	}
	found, err := ask(ctx, "ip", r.Hostname)
	var none *net.DNSError
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookup, r.nameDue = nil, time.Now().Add(nameFor)
	switch {
	case err == nil:
		r.named = found
	case errors.As(err, &none) && none.IsNotFound:
		r.named = nil
	default:
		r.nameDue = time.Now().Add(nameAgain)
	}
}

// Close ends a lookup of the host's name that runs, and waits for its end. No lookup begins after that.
func (r *Real) Close() {
	r.mu.Lock()
	r.closed = true
	l := r.lookup
	r.mu.Unlock()
	if l != nil {
		l.cancel()
		<-l.done
	}
}

// defaultInterface returns the interface of the default route in the kernel's routing table. It stops reading the table at that
// route.
func defaultInterface(table io.Reader, v6 bool) string {
	for s := bufio.NewScanner(table); s.Scan(); {
		f := strings.Fields(s.Text())
		switch {
		case v6 && len(f) >= 10 && f[1] == "00" && strings.Trim(f[0], "0") == "" && f[9] != "lo":
			return f[9]
		case !v6 && len(f) >= 8 && f[1] == "00000000" && f[7] == "00000000":
			return f[0]
		}
	}
	return ""
}

// primaryV4 returns the first IPv4 address of an interface.
func primaryV4(name string) netip.Addr {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq(name)
	if err != nil || unix.IoctlIfreq(fd, unix.SIOCGIFADDR, req) != nil {
		return netip.Addr{}
	}
	b, err := req.Inet4Addr()
	if err != nil {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// anyV4 returns the first global IPv4 address of an interface. It is used if the first address of the interface is not global.
func anyV4(name string) netip.Addr {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return netip.Addr{}
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// addressOfV6 returns the first global address of an interface in the kernel's table /proc/net/if_inet6. A line has the address
// as 32 hex digits, four other fields, and the interface.
func addressOfV6(table io.Reader, name string) netip.Addr {
	if name == "" {
		return netip.Addr{}
	}
	for s := bufio.NewScanner(table); s.Scan(); {
		f := bytes.Fields(s.Bytes())
		if len(f) < 6 || string(f[5]) != name || len(f[0]) != 32 {
			continue
		}
		var text []byte
		for i := 0; i < 32; i += 4 {
			text = append(append(text, f[0][i:i+4]...), ':')
		}
		if a, err := netip.ParseAddr(string(text[:len(text)-1])); err == nil && a.IsGlobalUnicast() {
			return a
		}
	}
	return netip.Addr{}
}
