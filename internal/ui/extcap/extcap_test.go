// SPDX-License-Identifier: Apache-2.0

package extcap

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/pkg/capture"
)

func written(t *testing.T, write func(*strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func named(name string) *instance.Info {
	return &instance.Info{State: instance.State{Name: name}}
}

func TestSentences(t *testing.T) {
	all := slices.Concat(
		ofInstance(named("web"), []capture.Interface{
			{Name: "lo", LinkType: capture.LinkTypeEthernet, Loopback: true},
			{Name: "eth0", LinkType: capture.LinkTypeEthernet, Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("fe80::1/64")}},
		}),
		ofInstance(named("web-eth0"), []capture.Interface{{Name: "eth1", LinkType: capture.LinkTypeRaw}}),
		ofInstance(named("mute"), nil),
		ofInstance(&instance.Info{State: instance.State{Name: "67fe26081cc7", Pod: &instance.Pod{Namespace: "shop", Name: "web-7d9"}}}, nil),
	)
	got := written(t, func(b *strings.Builder) error { return WriteInterfaces(b, "1.0", all) })
	want := `extcap {version=1.0}{help=https://github.com/lklrun/lklrun/blob/main/docs/how-to/capture.md}{display=lklrun: stacks in user space}
interface {value=lklrun-web}{display=lklrun web: all interfaces}
interface {value=lklrun-web-lo}{display=lklrun web: lo}
interface {value=lklrun-web-eth0}{display=lklrun web: eth0 192.0.2.2/24}
interface {value=lklrun-web-eth0}{display=lklrun web-eth0: all interfaces}
interface {value=lklrun-web-eth0-eth1}{display=lklrun web-eth0: eth1}
interface {value=lklrun-mute}{display=lklrun mute: all interfaces}
interface {value=lklrun-67fe26081cc7}{display=lklrun shop/web-7d9: all interfaces}
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for value, dlt := range map[string]string{"lklrun-web": "EN10MB", "lklrun-web-lo": "EN10MB", "lklrun-web-eth0-eth1": "RAW"} {
		i, err := Find(all, value)
		if err != nil {
			t.Fatal(err)
		}
		if got := written(t, func(b *strings.Builder) error { return WriteDLTs(b, i) }); !strings.Contains(got, "{name="+dlt+"}") {
			t.Errorf("%s: %s", value, got)
		}
	}
	if _, err := Find(all, "lklrun-gone"); err == nil || !strings.Contains(err.Error(), `"lklrun-gone"`) {
		t.Error(err)
	}

	whole, _ := Find(all, "lklrun-web")
	devices := Devices(all, whole)
	if !slices.Equal(devices, []string{"eth0", "lo"}) {
		t.Error(devices)
	}
	config := written(t, func(b *strings.Builder) error { return WriteConfig(b, whole, devices) })
	again := written(t, func(b *strings.Builder) error { return WriteReload(b, whole, devices, OnlyOption) })
	for _, s := range []string{"{call=--snap}", "{call=--direction}", "{call=--buffer}", "{call=--owners}", "{call=--only}", "{reload=true}", again} {
		if !strings.Contains(config, s) {
			t.Errorf("the dialog lacks %q:\n%s", s, config)
		}
	}
	if want := "value {arg=4}{value=any}{display=all}{default=true}\nvalue {arg=4}{value=eth0}{display=eth0}\nvalue {arg=4}{value=lo}{display=lo}\n"; again != want {
		t.Errorf("got\n%swant\n%s", again, want)
	}
	if err := WriteReload(&strings.Builder{}, whole, devices, "colour"); exit.Status(err) != exit.Usage {
		t.Errorf("an option that is none: %v", err)
	}
	one := Interface{Value: "x", Device: "eth0"}
	if config := written(t, func(b *strings.Builder) error { return WriteConfig(b, one, nil) }); strings.Contains(config, OnlyOption) {
		t.Errorf("an interface offers a choice of interfaces:\n%s", config)
	}
}

func TestSentenceIsOne(t *testing.T) {
	got := written(t, func(b *strings.Builder) error { return sentence(b, "word", value{"a", "x}{b=\ny"}) })
	if got != "word {a=x)(b= y}\n" {
		t.Errorf("%q", got)
	}
}

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for range 2 { // the second call must not fail
		path, err := Install(t.Context(), dir, "/opt/it's/lklctl")
		if err != nil || path != filepath.Join(dir, "lklrun") {
			t.Fatal(path, err)
		}
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm()&0o111 != 0o111 {
			t.Error(st.Mode(), err)
		}
		b, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(b), "exec '/opt/it'\\''s/lklctl' extcap \"$@\"\n") {
			t.Errorf("%s %v", b, err)
		}
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "lklrun"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), other, "/opt/lklctl"); err == nil || !strings.Contains(err.Error(), "was not created by lklctl") {
		t.Error(err)
	}
}

func TestChooseFolder(t *testing.T) {
	for folders, want := range map[string]string{
		"Temp:   \t/tmp\nExtcap path:         \t/usr/lib/extcap\n":                                     "/usr/lib/extcap",
		"Personal Extcap path:\t/home/a b/extcap\nGlobal Extcap path:\t/usr/lib/extcap\nTemp:\t/tmp\n": "/home/a b/extcap",
	} {
		if got, err := chooseFolder(folders); got != want || err != nil {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	if _, err := chooseFolder("Temp: /tmp\n"); err == nil {
		t.Error("a folder was found")
	}
}
