package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"
)

// Only announcements of other connections are sent again. Otherwise the stand-in would answer its own for ever.
func TestAnnouncementsOfOthersCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal     dbus.Signal
		begins, ok bool
	}{
		{dbus.Signal{Sender: ":1.7", Path: path, Name: prepare, Body: []any{true}}, true, true},
		{dbus.Signal{Sender: ":1.7", Path: path, Name: prepare, Body: []any{false}}, false, true},
		{dbus.Signal{Sender: ":1.1", Path: path, Name: prepare, Body: []any{true}}, false, false},
		{dbus.Signal{Sender: ":1.7", Path: "/other", Name: prepare, Body: []any{true}}, false, false},
		{dbus.Signal{Sender: ":1.7", Path: path, Name: manager + ".PrepareForSleep", Body: []any{true}}, false, false},
		{dbus.Signal{Sender: ":1.7", Path: path, Name: prepare, Body: []any{"yes"}}, false, false},
		{dbus.Signal{Sender: ":1.7", Path: path, Name: prepare}, false, false},
	} {
		if begins, ok := announced(&c.signal, ":1.1"); begins != c.begins || ok != c.ok {
			t.Errorf("%+v announces %v, %v; want %v, %v", c.signal, begins, ok, c.begins, c.ok)
		}
	}
}

func TestPropertiesAreThoseThatAnAgentAsksFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := &logind{configuration: dir}
	check := func(name string, want any) {
		t.Helper()
		if got, err := l.property(manager, name); err != nil || got.Value() != want {
			t.Errorf("%s is %v, want %v (%v)", name, got, want, err)
		}
	}
	check("InhibitDelayMaxUSec", uint64(5_000_000))
	for name, text := range map[string]string{
		"50-x.conf": "[Login]\nInhibitDelayMaxSec=90\n", "99-kubelet.conf": "# of the agent\n[Login]\nInhibitDelayMaxSec=30\n", "note.txt": "InhibitDelayMaxSec=7\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check("InhibitDelayMaxUSec", uint64(30_000_000))
	check("PreparingForShutdown", false)
	l.preparing.Store(true)
	check("PreparingForShutdown", true)
	if _, err := l.property(manager, "Docked"); err == nil {
		t.Error("a property that the stand-in does not have was answered")
	}
}

// The file that delays a shutdown is open until the agent closes it.
func TestInhibitReturnsAnOpenFile(t *testing.T) {
	t.Parallel()
	fd, failed := (&logind{}).inhibit("shutdown", "agent", "pods end first", "delay")
	if failed != nil {
		t.Fatal(failed)
	}
	file := os.NewFile(uintptr(fd), "inhibitor")
	if _, err := file.Stat(); err != nil {
		t.Errorf("the file is not open: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
