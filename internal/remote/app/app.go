// SPDX-License-Identifier: Apache-2.0

// Package app makes Android start an app under lklrun. It uses the property
// wrap.PACKAGE, whose value the zygote prepends to the command line of an app's
// process (frameworks/base, com.android.internal.os.Zygote and WrapperInit).
// The value names our script, which makes lklrun start that process with
// the engine that the phone's kernel and the app's seccomp filter allow.
package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/ondevice"
)

const (
	// sdkLeast is the first Android SDK (Android 8.0) whose property names can be
	// as long as a package's name. Earlier zygotes truncate the names.
	sdkLeast = 26
	// valueMost is the maximum length of a property's value: PROP_VALUE_MAX
	// of sys/system_properties.h without the terminator.
	valueMost = 91
	// startLimit is the timeout for the start of an app's process.
	startLimit = 15 * time.Second
	startEvery = 250 * time.Millisecond
)

// packageName matches valid package names. They become part of shell commands
// and of a property's name.
var packageName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+$`)

// CheckName returns an error if a package name is invalid.
func CheckName(name string) error {
	if !packageName.MatchString(name) {
		return fmt.Errorf("%q is not a package name; expected one such as org.example.app", name)
	}
	return nil
}

// App is an app on a device.
type App struct {
	ready *remote.Ready
	name  string        // name of the package
	uid   int           // the app's user ID, from check
	limit time.Duration // timeout of the start
}

// New returns the app of a package on an Android device. It checks the name.
func New(ready *remote.Ready, name string) (*App, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return &App{ready: ready, name: name, limit: startLimit}, nil
}

func (a *App) refuse(format string, args ...any) error {
	return &remote.Error{Device: a.ready.Name(), Err: fmt.Errorf(format, args...), UserError: true}
}

// shell runs a command on the device, as root if su allows it.
func (a *App) shell(ctx context.Context, line string) (out string, status int, err error) {
	var b remote.Head
	status, err = a.ready.Run(ctx, remote.Command{Line: a.ready.Shell(line), Stdout: &b, Stderr: &b})
	return strings.TrimSpace(b.String()), status, err
}

// Run starts the app under lklrun with these flags. Until Unset, each later start
// uses lklrun, too. If Run fails, it reverts all changes, but the app remains
// stopped.
func (a *App) Run(ctx context.Context, flags []string) (err error) {
	if err := a.check(ctx); err != nil {
		return err
	}
	if err := a.plan(ctx, flags); err != nil {
		return err
	}
	value := "sh " + a.script()
	if len(value) > valueMost {
		return a.refuse("the value of %s would have %d bytes (%s); the limit of a property is %d", a.property(), len(value), value, valueMost)
	}
	lent, flags, err := splitLent(flags)
	if err != nil {
		return a.refuse("%w", err)
	}
	if err := a.put(ctx, len(lent) > 0, flags); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = a.Unset(context.WithoutCancel(ctx)) // the error of Run is more important
		}
	}()
	if _, _, err = a.shell(ctx, "am force-stop "+a.name); err != nil {
		return err
	}
	if err = a.serveFDs(ctx, lent); err != nil {
		return err
	}
	if err = a.set(ctx, value); err != nil {
		return err
	}
	out, status, err := a.shell(ctx, "monkey -p "+a.name+" -c android.intent.category.LAUNCHER 1")
	switch {
	case err != nil:
		return err
	case strings.Contains(out, "No activities found"):
		return a.refuse("%s has no activity that a launcher can start", a.name)
	case status != 0:
		return a.refuse("%s cannot be started: monkey exited with status %d: %s", a.name, status, lastLine(out))
	}
	return a.await(ctx)
}

// Unset removes the property, so that the app starts normally again, and stops the
// app.
func (a *App) Unset(ctx context.Context) error {
	if err := a.set(ctx, ""); err != nil {
		return err
	}
	socket := remote.Quote(a.socket())
	_, _, err := a.shell(ctx, "am force-stop "+a.name+"; rm -f "+remote.Quote(a.script())+
		"; [ ! -S "+socket+" ] || "+remote.Quote(a.lklrun())+" device lend --end "+socket+"; rm -f "+socket)
	return err
}

func (a *App) property() string { return "wrap." + a.name }

// set sets the property and checks the result.
func (a *App) set(ctx context.Context, value string) error {
	out, _, err := a.shell(ctx, "setprop "+a.property()+" "+remote.Quote(value)+"; getprop "+a.property())
	if err != nil {
		return err
	}
	if got := lastLine(out); value != "" && got != value || value == "" && strings.HasPrefix(got, "sh "+a.folder()) {
		return a.refuse("the property %s cannot be set there; root is required (`adb root`, or su); output of the device: %s", a.property(), lastLine(out))
	}
	return nil
}

// folder returns the folder of the scripts. It is in the same folder as the
// bundles.
func (a *App) folder() string { return path.Join(a.ready.Facts.Base, ondevice.AppFolder) }

// script returns the path of the app's script. The path is short, even if the app's
// name is long.
func (a *App) script() string {
	sum := sha256.Sum256([]byte(a.name))
	return path.Join(a.folder(), hex.EncodeToString(sum[:4]))
}

// lklrun returns the path of the device's lklrun.
func (a *App) lklrun() string { return path.Join(a.ready.Dir, "lklrun") }

// socket returns the path of the socket at which the app's lklrun receives interfaces.
func (a *App) socket() string { return a.script() + ".sock" }

// put writes the script to the device. If lklrun has been removed, the script
// starts the app normally.
func (a *App) put(ctx context.Context, lent bool, flags []string) error {
	lklrun := remote.Quote(a.lklrun())
	take := ""
	if lent {
		take = fmt.Sprintf("%s device take %s ", lklrun, remote.Quote(a.socket()))
	}
	data := "/data/data/" + a.name
	words := make([]string, len(flags))
	for n, f := range flags {
		words[n] = remote.Quote(f)
	}
	text := fmt.Sprintf(`# lklctl app run %[1]s: what the property wrap.%[1]s names.
[ -x %[2]s ] || exec "$@"
export LKLRUN_RUN_DIR=%[3]s/lklrun TMPDIR=%[3]s/cache
exec %[6]s%[2]s --no-config --name %[4]s %[5]s -- "$@"
`, a.name, lklrun, data, instance.BaseName(a.name), strings.Join(words, " "), take)
	out, status, err := a.shell(ctx, "mkdir -p "+remote.Quote(a.folder())+" && chmod 755 "+remote.Quote(a.folder()))
	if err != nil {
		return err
	}
	if status != 0 {
		return a.refuse("creating the directory for the app's script: %s", lastLine(out))
	}
	// Write the script through a pipe to a shell: the folder may belong to root,
	// and only the shell has root rights through su.
	var said remote.Head
	line := "cat >" + remote.Quote(a.script()) + " && chmod 755 " + remote.Quote(a.script())
	status, err = a.ready.Run(ctx, remote.Command{Line: a.ready.Shell(line), Stdin: io.Reader(strings.NewReader(text)), Stdout: &said, Stderr: &said})
	if err == nil && status != 0 {
		err = a.refuse("writing the app's script: %s", lastLine(said.String()))
	}
	return err
}

// await waits until the app has a process.
func (a *App) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	tick := time.NewTicker(startEvery)
	defer tick.Stop()
	for {
		out, status, err := a.shell(ctx, "pidof "+a.name)
		switch {
		case err == nil && status == 0 && out != "":
			return nil
		case err != nil && ctx.Err() == nil:
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return a.refuse("%s has no process after %v, so %s was reset; `adb logcat -d` shows the reason (look for %[1]s, Zygote and lklrun)", a.name, a.limit, a.property())
		}
	}
}

// appProcess is the program that runs in the process of every 64-bit app.
const appProcess = "/system/bin/app_process64"

// plan makes the device's lklrun plan a run of the app's process. This checks that
// lklrun supports the flags, and the loader and C library of the process.
func (a *App) plan(ctx context.Context, flags []string) error {
	args := append([]string{"--no-config", "--dry-run", "--engine", "preload"}, flags...)
	var said remote.Head
	status, err := a.ready.Run(ctx, remote.Command{Line: a.ready.Command(append(args, "--", appProcess)...), Stderr: &said})
	if err == nil && status != 0 {
		err = a.refuse("apps cannot run under lklrun there: %s", strings.TrimPrefix(lastLine(said.String()), "lklrun: "))
	}
	return err
}

// check returns an error if the app cannot run under lklrun.
func (a *App) check(ctx context.Context) error {
	f := a.ready.Facts
	if sdk, err := strconv.Atoi(f.SDK); err != nil {
		return a.refuse("it does not run Android; apps require --device adb:SERIAL")
	} else if sdk < sdkLeast {
		return a.refuse("its Android has SDK %d, where the property name %s is too long; SDK %d (Android 8.0) is required", sdk, a.property(), sdkLeast)
	}
	if f.Arch == "arm" {
		return a.refuse("it is a 32-bit device (%s), which the engine preload does not support", f.ABI)
	}
	if f.SELinux == "Enforcing" {
		return a.refuse("SELinux is enforcing there, and does not allow apps to execute files in %s; on a test device, run `adb root` and `adb shell setenforce 0`", f.Base)
	}
	out, _, err := a.shell(ctx, "getprop ro.debuggable; dumpsys package "+a.name)
	if err != nil {
		return err
	}
	debuggable, about, _ := strings.Cut(out, "\n")
	p := parse(about, a.name)
	a.uid = p.uid
	switch {
	case !p.found:
		return a.refuse("there is no app %s; `adb shell pm list packages` lists the apps", a.name)
	case !p.debuggable && strings.TrimSpace(debuggable) != "1":
		return a.refuse("neither %s nor the device (ro.debuggable) is debuggable, which Android requires for a wrapper", a.name)
	case p.abi != "" && p.abi != "arm64-v8a" && p.abi != "x86_64":
		return a.refuse("%s is a 32-bit app (%s), and its process cannot load the engine preload of a 64-bit bundle", a.name, p.abi)
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
