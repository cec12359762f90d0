package console

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"sync"
	"time"
)

// linkLife is how long a login link is valid.
const linkLife = 10 * time.Minute

// Login guards a console on a loopback port. A link that works once sets a cookie in a browser. Requests without the cookie are
// refused. Its methods may be called concurrently.
type Login struct {
	address string // host:port of the listener
	port    string
	session string

	mu    sync.Mutex
	token string // "": it was used
	until time.Time
}

// NewLogin returns a Login for a console that listens at this address.
func NewLogin(l net.Addr) *Login {
	_, port, _ := net.SplitHostPort(l.String()) // the address of a TCP listener is valid
	return &Login{address: l.String(), port: port, session: secret()}
}

// secret returns 256 random bits.
func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Link returns a new login link. Links that it returned earlier stop working.
func (l *Login) Link() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token, l.until = secret(), time.Now().Add(linkLife)
	return "http://" + l.address + "/open/" + l.token
}

// use reports whether the token belongs to the current link and has not expired. If so, the link does not work any more.
func (l *Login) use(token string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == "" || time.Now().After(l.until) || subtle.ConstantTimeCompare([]byte(token), []byte(l.token)) != 1 {
		return false
	}
	l.token = ""
	return true
}

// cookie is the name of the cookie. Cookies of a host are sent to all its ports, so the name contains the port.
func (l *Login) cookie() string { return "wherry-console-" + l.port }

// Guard returns a handler that calls next only for requests with the cookie, which the browser got when it opened the link.
func (l *Login) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := r.Host; host != l.address && host != "localhost:"+l.port {
			http.Error(w, "this console is only at http://"+l.address, http.StatusMisdirectedRequest)
			return
		}
		if o := r.Header.Get("Origin"); o != "" && o != "http://"+r.Host {
			http.Error(w, "this request is of a browser's page from another site", http.StatusForbidden)
			return
		}
		if !Secure(w, r) {
			return
		}
		if r.Method != http.MethodGet {
			http.Error(w, "the console can only be read", http.StatusMethodNotAllowed)
			return
		}
		if token := r.URL.Path; len(token) > len("/open/") && token[:len("/open/")] == "/open/" {
			l.open(w, r, token[len("/open/"):])
			return
		}
		c, err := r.Cookie(l.cookie())
		if err != nil || subtle.ConstantTimeCompare([]byte(c.Value), []byte(l.session)) != 1 {
			http.Error(w, "open the link that wherry console has printed: it works once, in one browser; press Enter there for another one", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// open exchanges the token of the link for the cookie.
func (l *Login) open(w http.ResponseWriter, r *http.Request, token string) {
	if !l.use(token) {
		http.Error(w, "this link does not work any more: press Enter at wherry console for another one", http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: l.cookie(), Value: l.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, Path, http.StatusSeeOther)
}
