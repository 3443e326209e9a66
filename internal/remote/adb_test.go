// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice"
)

// plug starts a server with phones and makes this process use it.
func plug(t *testing.T, state string, phones ...*fakedevice.Phone) *fakedevice.ADB {
	t.Helper()
	server := fakedevice.NewADB(t)
	for _, v := range server.Env() {
		if name, value, _ := strings.Cut(v, "="); name == "HOME" || strings.HasPrefix(name, "ANDROID_") {
			t.Setenv(name, value)
		}
	}
	for _, p := range phones {
		server.Connect(p, state)
	}
	return server
}

func openTest(t *testing.T, spec string) (Device, error) {
	t.Helper()
	targets, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(testContext(t), targets[0])
	if err == nil {
		t.Cleanup(func() { _ = d.Close() }) // the connection ends with the server
	}
	return d, err
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// refused expects a one-line error for the user, and its status.
func refused(t *testing.T, what string, err error, status int, words ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.ExitStatus() != status || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v (%T), want one line and status %d", what, err, err, status)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q, want %q in it", what, err, w)
		}
	}
}

func file(name string, mode fs.FileMode, content []byte) File {
	return File{Name: name, Mode: mode, Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}

func TestADB(t *testing.T) {
	kit.Need(t, "adb")
	phone := fakedevice.New(t, fakedevice.Options{Arch: "amd64", Storage: 32 << 20})
	server := plug(t, "device", phone)
	d, err := openTest(t, "adb")
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)

	t.Run("run", func(t *testing.T) {
		var out, errs bytes.Buffer
		long := strings.Repeat(": much more than 255 bytes;", 100)
		status, err := d.Run(ctx, Command{Line: long + "cat; echo lost >&2; exit 3", Stdin: strings.NewReader("found"), Stdout: &out, Stderr: &errs})
		if err != nil || status != 3 || out.String() != "found" || errs.String() != "lost\n" {
			t.Errorf("%d, %v, %q, %q", status, err, out.String(), errs.String())
		}
		if status, err := d.Run(ctx, Command{Line: "cat; kill -9 $$"}); err != nil || status != 128+9 {
			t.Errorf("without streams: %d, %v", status, err)
		}
	})
	t.Run("stream", func(t *testing.T) {
		data := make([]byte, 20<<20)
		_, _ = rand.Read(data) // never fails
		st, err := d.Start(ctx, "cat; exit 7", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		go func() {
			_, _ = st.Write(data) // after an error the checksums differ
			_ = st.CloseWrite()
		}()
		got, err := io.ReadAll(st)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d of %d bytes came back, %v", len(got), len(data), err)
		}
		if status, err := st.Wait(); status != 7 || err != nil {
			t.Errorf("end: %d, %v", status, err)
		}
	})
	t.Run("begun", func(t *testing.T) {
		exists := func(ctx context.Context, dir string) bool {
			status, err := d.Run(ctx, Command{Line: "[ -d " + Quote(dir) + " ]"})
			if err != nil {
				t.Fatal(err)
			}
			return status == 0
		}
		r := &Ready{Device: d}
		for name, end := range map[string]func(done, cut func()){
			"done": func(done, _ func()) { done() },
			"cut":  func(_, cut func()) { cut() },
		} {
			dir := "/data/local/tmp/begun '" + name
			way, cut := context.WithCancel(ctx)
			done, err := r.begin(way, dir, "700")
			if err != nil || !exists(ctx, dir) {
				t.Fatalf("%s: %v", name, err)
			}
			end(done, cut)
			kit.WaitFor(t, name+": no folder", 5*time.Second, func() bool { return !exists(ctx, dir) })
			cut()
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(ctx)
		why := errors.New("enough")
		st, err := d.Start(ctx, "exec cat", nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel(why)
		if _, err := st.Wait(); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
		kit.WaitFor(t, "the end of cat", 20*time.Second, func() bool { return len(phone.Processes()) == 0 })
	})
	t.Run("push", func(t *testing.T) {
		large := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
		var steps []int64
		err := d.Push(ctx, []File{
			file("a/large", 0o755, large), file("a/empty", 0o640, nil), {Name: "a/b/link", Link: "../large"},
		}, "/data/local/tmp", func(done int64) { steps = append(steps, done) })
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(phone.Path("/data/local/tmp/a/b/link"))
		if err != nil || !bytes.Equal(got, large) {
			t.Errorf("what is there: %d bytes, %v", len(got), err)
		}
		if !slices.IsSorted(steps) || len(steps) < 2 || steps[len(steps)-1] < int64(len(large)) {
			t.Errorf("progress: %v", steps)
		}
		for name, mode := range map[string]fs.FileMode{"large": 0o755, "empty": 0o640} {
			if st, err := os.Stat(phone.Path("/data/local/tmp/a/" + name)); err != nil || st.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", name, st, err)
			}
		}
		err = d.Push(ctx, []File{file("much", 0o644, make([]byte, 33<<20))}, "/data/local/tmp", nil)
		refused(t, "a full device", err, 2, "/data/local/tmp/much", "No space left on device")
		if _, err := os.Stat(phone.Path("/data/local/tmp/much")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("half a file is left: %v", err)
		}
		refused(t, "a read-only place", d.Push(ctx, []File{file("x", 0o644, nil)}, "/system", nil), 2, "Read-only file system")
	})
	t.Run("names", func(t *testing.T) {
		// After a push that fails, adb may connect to the phone again.
		kit.WaitFor(t, "the phone by its serial number", 20*time.Second, func() bool {
			d, err := openTest(t, "adb:"+phone.Serial)
			return err == nil && d.Name() == "adb:"+phone.Serial
		})
		_, err := openTest(t, "adb:nobody")
		refused(t, "no such device", err, 2, "adb:nobody", "no device nobody", "adb devices")
		t.Setenv("ANDROID_SERIAL", "nobody")
		_, err = openTest(t, "adb")
		refused(t, "ANDROID_SERIAL", err, 2, "no device nobody")
		t.Setenv("ANDROID_SERIAL", "")
		t.Setenv("PATH", "/nonexistent")
		_, err = openTest(t, "adb")
		refused(t, "no adb", err, 2, "program adb is not installed", "apt install adb")
	})
	t.Run("unplugged", func(t *testing.T) {
		st, err := d.Start(ctx, "exec cat", nil)
		if err != nil {
			t.Fatal(err)
		}
		server.Disconnect(phone)
		_, err = st.Wait()
		refused(t, "in the middle", err, 125, "unplugged")
		_, err = d.Run(ctx, Command{Line: "true"})
		refused(t, "before", err, 125, "unplugged")
		_, err = openTest(t, "adb")
		refused(t, "no device", err, 2, "connect one")
		_, err = listADB(ctx)
		refused(t, "all of none", err, 2, "connect one")
	})
}

// Devices in unusable states are rejected, as are several devices at once.
func TestADBStates(t *testing.T) {
	kit.Need(t, "adb")
	good := fakedevice.New(t, fakedevice.Options{Arch: "amd64"})
	locked := fakedevice.New(t, fakedevice.Options{Arch: "amd64", Unauthorized: true})
	server := plug(t, "device", good)
	server.Connect(locked, "unauthorized")

	_, err := openTest(t, "adb")
	refused(t, "two devices", err, 2, "2 devices", "adb:"+good.Serial, "adb:"+locked.Serial, "all")
	_, err = openTest(t, "adb:"+locked.Serial)
	refused(t, "unauthorized", err, 2, "authorized", "screen")
	all, err := listADB(testContext(t))
	if err != nil || len(all) != 2 || !slices.Contains(all, Target{Kind: KindADB, Name: good.Serial}) {
		t.Errorf("all: %v, %v", all, err)
	}
	server.Disconnect(good)
	good.Hang()
	server.Connect(good, "offline")
	_, err = openTest(t, "adb:"+good.Serial)
	refused(t, "offline", err, 2, "offline", "adb reconnect")
	good.Wake()
}

// TestADBHostile checks that a hostile device or server can neither stop lklrun nor make it
// use much memory or print several lines.
func TestADBHostile(t *testing.T) {
	kit.Need(t, "adb")
	const fine = "OKAY0008shell_v2"
	push := func(ctx context.Context, d Device) error {
		return d.Push(ctx, []File{file("f", 0o644, []byte("x"))}, "/d", nil)
	}
	run := func(ctx context.Context, d Device) error {
		_, err := d.Run(ctx, Command{Line: "true"})
		return err
	}
	for name, tt := range map[string]struct {
		features, answer string
		ask              func(context.Context, Device) error
		words            string
	}{
		"negative length":      {"FAIL-001", "", nil, "length of an answer"},
		"no length":            {"FAILzzzz", "", nil, "length of an answer"},
		"no status":            {"\x1b]0;x", "", nil, "neither OKAY nor FAIL"},
		"short answer":         {"OKAYffffshell_v2", "", nil, "does not answer"},
		"lines in a reason":    {"FAIL0003a\nb", "", nil, "a b"},
		"negative sync length": {fine, "FAIL\xff\xff\xff\xff", push, "more than the limit"},
		"large sync length":    {fine, "FAIL\xff\xff\xff\x7f", push, "more than the limit"},
		"large OKAY":           {fine, "OKAY\xff\xff\xff\x7f", push, "more than the limit"},
		"sync lines":           {fine, "FAIL\x03\x00\x00\x00a\nb", push, "a b"},
		"wrong sync answer":    {fine, "DENT\x00\x00\x00\x00", push, "neither OKAY nor FAIL"},
		"cut sync answer":      {fine, "FAIL\x03\x00\x00\x00a", push, "does not answer"},
		"cut packet":           {fine, "\x01\xff\xff\xff\xffx", run, "was lost"},
		"exit without status":  {fine, "\x03\x00\x00\x00\x00", run, "was lost"},
		"unknown packet":       {fine, "\x7f\xff\xff\xff\xffx", run, "was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			kit.Must(t, err)
			defer l.Close()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			t.Setenv("ANDROID_ADB_SERVER_PORT", port)
			go func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					serveHostile(c, tt.features, tt.answer)
				}
			}()
			ctx := testContext(t)
			d, err := Open(ctx, Target{Kind: KindADB, Name: "phone"})
			if tt.ask != nil {
				kit.Must(t, err)
				err = tt.ask(ctx, d)
			}
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%v", err)
			}
		})
	}
}

// serveHostile answers the requests of one connection as an adb server with one device.
func serveHostile(c net.Conn, features, answer string) {
	defer c.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		n, err := strconv.ParseUint(string(size[:]), 16, 16)
		request := make([]byte, n)
		if _, failed := io.ReadFull(c, request); err != nil || failed != nil {
			return
		}
		switch asked := string(request); {
		case asked == "host:devices":
			_, _ = io.WriteString(c, "OKAY000dphone\tdevice\n") // the client reports a failure
			return
		case strings.HasSuffix(asked, ":features"):
			_, _ = io.WriteString(c, features)
			return
		case strings.HasPrefix(asked, "host:transport:"):
			_, _ = io.WriteString(c, "OKAY")
		default:
			_, _ = io.WriteString(c, "OKAY"+answer)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c) // until the client gives up
			return
		}
	}
}
