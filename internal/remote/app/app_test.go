// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/heredevice"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }

// dumpsys is the beginning of the output of `dumpsys package` for a debuggable
// app, in the form of PackageManagerService.
const dumpsys = `Activity Resolver Table:
  Non-Data Actions:
Packages:
  Package [org.example.app] (4f2a9c1):
    userId=10133
    pkg=Package{a1b2c3 org.example.app}
    primaryCpuAbi=arm64-v8a
    versionCode=1 minSdk=21 targetSdk=33
    flags=[ DEBUGGABLE HAS_CODE ALLOW_CLEAR_USER_DATA ]
    pkgFlags=[ DEBUGGABLE HAS_CODE ALLOW_CLEAR_USER_DATA ]
  Package [org.example.app.other] (4f2a9c2):
    primaryCpuAbi=armeabi-v7a
    flags=[ HAS_CODE ]
`

// phone returns a device with programs that record their arguments. programs adds
// or replaces programs.
func phone(t *testing.T, facts remote.Facts, programs map[string]string) (ready *remote.Ready, sent func() string, base string) {
	t.Helper()
	base = kit.Dir(t)
	bin := filepath.Join(base, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	props := filepath.Join(base, "props")
	if err := os.Mkdir(props, 0o755); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"getprop": `cat ` + props + `/"$1" 2>/dev/null; echo`,
		"setprop": `printf %s "$2" >` + props + `/"$1"`,
		"am":      `exit 0`,
		"monkey":  `exit 0`,
		"pidof":   `echo 4242`,
		"dumpsys": "cat <<'END'\n" + dumpsys + "END",
	}
	for name, text := range programs {
		all[name] = text
	}
	for name, text := range all {
		note := `echo ` + name + ` "$@" >>` + base + "/sent\n"
		if name == "getprop" || name == "dumpsys" {
			note = ""
		}
		kit.WriteFile(t, filepath.Join(bin, name), "#!/bin/sh\n"+note+text+"\n")
		if err := os.Chmod(filepath.Join(bin, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kit.WriteFile(t, filepath.Join(base, "lklrun"), "#!/bin/sh\necho lklrun \"$@\" >>"+base+"/sent\n"+programs["lklrun"]+"\n")
	if err := os.Chmod(filepath.Join(base, "lklrun"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	ready = heredevice.New("adb:1234").Ready(base)
	facts.Base = base
	ready.Facts = facts
	return ready, func() string {
		text, err := os.ReadFile(filepath.Join(base, "sent"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), base, "BASE")
	}, base
}

var good = remote.Facts{Arch: "arm64", SDK: "33", SELinux: "Permissive", ABI: "arm64-v8a"}

func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newApp(t *testing.T, ready *remote.Ready, name string) *App {
	t.Helper()
	a, err := New(ready, name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Run executes exactly these commands on the device.
func TestRun(t *testing.T) {
	ready, sent, base := phone(t, good, nil)
	a := newApp(t, ready, "org.example.app")
	if err := a.Run(limit(t), []string{"--stack", "bbr", "--sysctl", "a=b c"}); err != nil {
		t.Fatal(err)
	}
	const script = "BASE/app/bbae1aaa"
	want := `lklrun --no-config --dry-run --engine preload --stack bbr --sysctl a=b c -- /system/bin/app_process64
am force-stop org.example.app
setprop wrap.org.example.app sh ` + script + `
monkey -p org.example.app -c android.intent.category.LAUNCHER 1
pidof org.example.app
`
	if diff := cmp.Diff(want, sent()); diff != "" {
		t.Errorf("(-want +sent):\n%s", diff)
	}
	text, err := os.ReadFile(strings.Replace(script, "BASE", base, 1))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`# lklctl app run org.example.app: what the property wrap.org.example.app names.
[ -x BASE/lklrun ] || exec "$@"
export LKLRUN_RUN_DIR=/data/data/org.example.app/lklrun TMPDIR=/data/data/org.example.app/cache
exec BASE/lklrun --no-config --name org.example.app --stack bbr --sysctl 'a=b c' -- "$@"
`, strings.ReplaceAll(string(text), base, "BASE")); diff != "" {
		t.Errorf("the script (-want +is):\n%s", diff)
	}
	if err := a.Unset(limit(t)); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimPrefix(sent(), want); got != "setprop wrap.org.example.app \nam force-stop org.example.app\n" {
		t.Errorf("unset: %q", got)
	}
	if left, err := os.ReadDir(filepath.Join(base, "app")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Interfaces that an app may not open are opened by a helper, which Unset ends.
func TestRunLent(t *testing.T) {
	ready, sent, base := phone(t, good, map[string]string{"lklrun": `case "$2 $3" in
"lend --end") rm "$4" ;;
lend*) python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$3" ;;
esac`})
	a := newApp(t, ready, "org.example.app")
	if err := a.Run(limit(t), []string{"--if", "rawip:rmnet0,ip=192.0.2.2/24", "--if=user", "--stack", "bbr", "--if=tap:tap0,mtu=1400"}); err != nil {
		t.Fatal(err)
	}
	const script = "BASE/app/bbae1aaa"
	want := `lklrun --no-config --dry-run --engine preload --if rawip:rmnet0,ip=192.0.2.2/24 --if=user --stack bbr --if=tap:tap0,mtu=1400 -- /system/bin/app_process64
am force-stop org.example.app
lklrun device lend ` + script + `.sock 10133 rawip:rmnet0,ip=192.0.2.2/24 tap:tap0,mtu=1400
setprop wrap.org.example.app sh ` + script + `
monkey -p org.example.app -c android.intent.category.LAUNCHER 1
pidof org.example.app
`
	if diff := cmp.Diff(want, sent()); diff != "" {
		t.Errorf("(-want +sent):\n%s", diff)
	}
	text, err := os.ReadFile(strings.Replace(script, "BASE", base, 1))
	if err != nil {
		t.Fatal(err)
	}
	const line = "exec BASE/lklrun device take BASE/app/bbae1aaa.sock BASE/lklrun --no-config --name org.example.app" +
		` --if fd:100,ip=192.0.2.2/24 --if user --stack bbr --if fd:101,mtu=1400 -- "$@"` + "\n"
	if got := strings.ReplaceAll(string(text), base, "BASE"); !strings.HasSuffix(got, line) {
		t.Errorf("the script: %s\nwant at its end: %s", got, line)
	}
	if err := a.Unset(limit(t)); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimPrefix(sent(), want); got != "setprop wrap.org.example.app \nam force-stop org.example.app\nlklrun device lend --end "+script+".sock\n" {
		t.Errorf("unset: %q", got)
	}
	if left, err := os.ReadDir(filepath.Join(base, "app")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// If a run is impossible, Run either rejects it before any change or reverts its
// changes.
func TestRefused(t *testing.T) {
	with := func(change func(*remote.Facts)) remote.Facts {
		f := good
		change(&f)
		return f
	}
	for name, tc := range map[string]struct {
		facts    remote.Facts
		programs map[string]string
		app      string
		flags    []string
		want     string
		undone   bool // the change was started, and is reverted
	}{
		"no Android":     {facts: with(func(f *remote.Facts) { f.SDK = "" }), want: "does not run Android"},
		"old":            {facts: with(func(f *remote.Facts) { f.SDK = "25" }), want: "SDK 25"},
		"32 bits":        {facts: with(func(f *remote.Facts) { f.Arch = "arm" }), want: "32-bit device"},
		"SELinux":        {facts: with(func(f *remote.Facts) { f.SELinux = "Enforcing" }), want: "SELinux is enforcing"},
		"not there":      {facts: good, app: "org.example.none", want: "there is no app org.example.none"},
		"not debuggable": {facts: good, app: "org.example.app.other", want: "is debuggable, which Android requires"},
		"32-bit app":     {facts: good, app: "org.example.app.other", programs: map[string]string{"getprop": "echo 1"}, want: "32-bit app (armeabi-v7a)"},
		"C library":      {facts: good, programs: map[string]string{"lklrun": "echo 'lklrun: /system/bin/app_process64 uses the loader /system/bin/linker64' >&2; exit 2"}, want: "apps cannot run under lklrun there: /system/bin/app_process64 uses the loader"},
		"nat":            {facts: good, flags: []string{"--if", "tap:tap0,nat,ip=192.0.2.2/24"}, want: "nat"},
		"lend":           {facts: good, flags: []string{"--if", "rawip:rmnet0"}, programs: map[string]string{"lklrun": `[ "$2" != lend ] || { echo "lklrun: no such device" >&2; exit 2; }`}, want: "opening the app's interfaces: no such device", undone: true},
		"no root":        {facts: good, programs: map[string]string{"setprop": `[ -z "$2" ] || { echo "setprop: failed to set property" >&2; exit 1; }`}, want: "root is required", undone: true},
		"no launcher":    {facts: good, programs: map[string]string{"monkey": `echo "** No activities found to run, monkey aborted."; exit 252`}, want: "no activity", undone: true},
		"cannot start":   {facts: good, programs: map[string]string{"monkey": `echo "Error: broken" >&2; exit 1`}, want: "monkey exited with status 1: Error: broken", undone: true},
		"does not come":  {facts: good, programs: map[string]string{"pidof": `exit 1`}, want: "has no process after 300ms, so wrap.org.example.app was reset", undone: true},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.app == "" {
				tc.app = "org.example.app"
			}
			ready, sent, base := phone(t, tc.facts, tc.programs)
			a := newApp(t, ready, tc.app)
			a.limit = 300 * time.Millisecond
			err := a.Run(limit(t), tc.flags)
			var known *remote.Error
			if !errors.As(err, &known) || known.ExitStatus() != 2 || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
			text := sent()
			if _, after, asked := strings.Cut(text, "app_process64\n"); asked { // the query changes nothing
				text = after
			}
			switch {
			case !tc.undone && text != "":
				t.Errorf("this was done:\n%s", text)
			case tc.undone && !strings.HasSuffix(text, "setprop wrap."+tc.app+" \nam force-stop "+tc.app+"\n"):
				t.Errorf("it was not taken back:\n%s", text)
			}
			if left, err := filepath.Glob(filepath.Join(base, "app", "*")); err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
	for _, name := range []string{"", "app", "org.example.app; reboot", "org.example.$(id)", "org..app", "1.2"} {
		if _, err := New(nil, name); err == nil {
			t.Errorf("%q is taken for a package", name)
		}
	}
}
