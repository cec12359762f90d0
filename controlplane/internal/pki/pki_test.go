package pki

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"testing"
	"time"
)

func newStore(t *testing.T, now *time.Time) *Store {
	t.Helper()
	return &Store{
		Dir: t.TempDir(), Now: func() time.Time { return *now },
		AuthorityLife: 1000 * time.Hour, LeafLife: 100 * time.Hour, Margin: 24 * time.Hour,
	}
}

func serial(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s holds no PEM block", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert.SerialNumber.String()
}

func TestEnsureKeepsWhatIsUsableAndMakesTheRest(t *testing.T) {
	t.Parallel()
	leaf := Leaf{Name: "a", CommonName: "a", Organization: []string{"o"}, DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}
	truncate := func(t *testing.T, path string) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name   string
		change func(t *testing.T, pair Pair, now *time.Time, l *Leaf)
		kept   bool
	}{
		{"nothing happened", func(*testing.T, Pair, *time.Time, *Leaf) {}, true},
		{"certificate half-written", func(t *testing.T, p Pair, _ *time.Time, _ *Leaf) { truncate(t, p.Cert) }, false},
		{"key half-written", func(t *testing.T, p Pair, _ *time.Time, _ *Leaf) { truncate(t, p.Key) }, false},
		{"key missing", func(t *testing.T, p Pair, _ *time.Time, _ *Leaf) { _ = os.Remove(p.Key) }, false},
		{"some time passed", func(_ *testing.T, _ Pair, now *time.Time, _ *Leaf) { *now = now.Add(75 * time.Hour) }, true},
		{"expires within the margin", func(_ *testing.T, _ Pair, now *time.Time, _ *Leaf) { *now = now.Add(77 * time.Hour) }, false},
		{"expired", func(_ *testing.T, _ Pair, now *time.Time, _ *Leaf) { *now = now.Add(101 * time.Hour) }, false},
		{"another name", func(_ *testing.T, _ Pair, _ *time.Time, l *Leaf) { l.DNSNames = append(l.DNSNames, "b") }, false},
		{"another address", func(_ *testing.T, _ Pair, _ *time.Time, l *Leaf) { l.IPs = append(l.IPs, net.IPv4(10, 0, 0, 1)) }, false},
		{"another group", func(_ *testing.T, _ Pair, _ *time.Time, l *Leaf) { l.Organization = nil }, false},
		{"another use", func(_ *testing.T, _ Pair, _ *time.Time, l *Leaf) { l.Client = true }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			now, l := time.Now(), leaf
			store := newStore(t, &now)
			pair := ensure(t, store, l)
			before := serial(t, pair.Cert)
			test.change(t, pair, &now, &l)
			ensure(t, store, l)
			if kept := serial(t, pair.Cert) == before; kept != test.kept {
				t.Errorf("certificate kept: %t, want %t", kept, test.kept)
			}
			if _, _, err := load(pair); err != nil {
				t.Errorf("what is there afterwards is not usable: %v", err)
			}
		})
	}
}

func ensure(t *testing.T, store *Store, leaf Leaf) Pair {
	t.Helper()
	ca, err := store.Authority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Ensure(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestNewAuthorityMakesNewLeaves(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := newStore(t, &now)
	leaf := Leaf{Name: "a", CommonName: "a", Client: true}
	pair := ensure(t, store, leaf)
	before := serial(t, pair.Cert)
	if err := os.WriteFile(store.pair("ca").Key, []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca, err := store.Authority("ca")
	if err != nil {
		t.Fatal(err)
	}
	if !ca.Made {
		t.Error("an authority with a half-written key was kept")
	}
	ensure(t, store, leaf)
	if serial(t, pair.Cert) == before {
		t.Error("a certificate of the earlier authority was kept")
	}
}

func TestKeyPairSurvives(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := newStore(t, &now)
	private, public, err := store.KeyPair("sa")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.KeyPair("sa"); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(public); string(after) != string(before) {
		t.Error("the key changed: tokens signed with it would be worthless")
	}
	if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("private key: mode %v, error %v, want 0600", info.Mode(), err)
	}
}
