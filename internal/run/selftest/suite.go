// SPDX-License-Identifier: Apache-2.0

// Package selftest runs tests of a kernel tree, each on a stack of its own and in a box from
// which it cannot change the host: scripts of tools/testing/selftests, and scripts for
// packetdrill.
package selftest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/lazyregexp"
)

// A Test is one script.
type Test struct {
	Name  string        // such as net/mptcp/pm_netlink.sh or net/packetdrill/tcp_inq_client.pkt/ipv4
	Root  string        // folder of which the test sees a private copy
	Dir   string        // folder in which it starts
	Args  []string      // command
	Limit time.Duration // time that its folder's file "settings" allows; 0: none
	Drill bool          // a script for packetdrill, which runs in virtual time
}

// Drill is the name of the suite of packetdrill scripts.
const Drill = "packetdrill"

// drillArgs are packetdrill's arguments for each IP version, as net/packetdrill/ksft_runner.sh of
// the kernel has them.
var drillArgs = map[string][]string{
	"ipv4": strings.Fields("--ip_version=ipv4 --local_ip=192.168.0.1 --gateway_ip=192.168.0.1 --netmask_ip=255.255.0.0 --remote_ip=192.0.2.1" +
		" -D TFO_COOKIE=3021b9d889017eeb -D TFO_COOKIE_ZERO=b7c12350a90dc8f5 -D CMSG_LEVEL_IP=SOL_IP -D CMSG_TYPE_RECVERR=IP_RECVERR"),
	"ipv6": strings.Fields("--ip_version=ipv6 --mtu=1520 --local_ip=fd3d:0a0b:17d6::1 --gateway_ip=fd3d:0a0b:17d6:8888::1 --remote_ip=fd3d:fa7b:d17d::1" +
		" -D TFO_COOKIE=c1d1e9742a47a9bc -D TFO_COOKIE_ZERO=82af1a8f9a205c34 -D CMSG_LEVEL_IP=SOL_IPV6 -D CMSG_TYPE_RECVERR=IPV6_RECVERR"),
}

var (
	drillVersion = lazyregexp.New(`(?m)^--ip_version=(ipv[46])\s*$`)
	testProgs    = lazyregexp.New(`(?m)^TEST_PROGS\s*[:+]?=((?:.*\\\n)*.*)$`)
	timeSetting  = lazyregexp.New(`(?m)^timeout=([0-9]+)$`)
)

// NeedsDrill reports whether a suite needs packetdrill.
func NeedsDrill(suite string) bool {
	name, _, _ := strings.Cut(suite, ":")
	return name == Drill || name == "net/"+Drill || isFiles(suite)
}

// isFiles reports whether a suite is a script for packetdrill, or a folder of them, of the user.
func isFiles(suite string) bool {
	if strings.HasSuffix(suite, ".pkt") && !strings.Contains(suite, ":") {
		return true
	}
	found, err := drillFiles(suite)
	return err == nil && len(found) > 0
}

// Collection returns the folder of a suite, below tools/testing/selftests, or "" if the suite
// is files of the user.
func Collection(suite string) string {
	name, _, _ := strings.Cut(suite, ":")
	switch {
	case isFiles(suite):
		return ""
	case name == Drill:
		return "net/" + Drill
	}
	return filepath.Clean(name)
}

// Find returns the tests of a suite: "packetdrill", a script for packetdrill or a folder of them,
// or a folder below selftests. Of the first and the last, COLLECTION:PREFIX chooses tests.
func Find(suite, selftests, drill string) ([]Test, error) {
	collection := Collection(suite)
	if collection == "" {
		root, err := filepath.Abs(suite)
		if err != nil {
			return nil, err
		}
		files, err := drillFiles(root)
		if err != nil {
			return nil, exit.Usagef("%w", err)
		}
		// Scripts of a collection execute others, such as ../common/defaults.sh.
		if len(files) == 1 && files[0] == root {
			return drillTests(filepath.Dir(root), filepath.Dir(filepath.Dir(root)), files, drill), nil
		}
		return drillTests(root, root, files, drill), nil
	}
	_, prefix, _ := strings.Cut(suite, ":")
	dir := filepath.Join(selftests, collection)
	if !filepath.IsLocal(collection) || !isDir(dir) {
		return nil, exit.Usagef("suite %q: neither packetdrill, nor a .pkt file or a folder with such files, nor a folder below %s", suite, selftests)
	}
	var tests []Test
	if NeedsDrill(suite) {
		files, err := drillFiles(dir)
		if err != nil {
			return nil, err
		}
		tests = drillTests(selftests, selftests, files, drill)
	} else {
		tests = scripts(selftests, collection, prefix)
	}
	tests = slices.DeleteFunc(tests, func(t Test) bool {
		return !strings.HasPrefix(t.Name, collection+"/"+prefix)
	})
	if len(tests) == 0 {
		return nil, exit.Usagef("suite %q: there is no such test in %s", suite, dir)
	}
	return tests, nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// drillFiles returns the file, or the .pkt files in the folder, in their order.
func drillFiles(path string) (files []string, err error) {
	err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(file, ".pkt") {
			files = append(files, file)
		}
		return err
	})
	return files, err
}

// drillTests returns the tests of scripts: each with IPv4 and IPv6, unless it names one.
func drillTests(base, root string, files []string, drill string) (tests []Test) {
	for _, file := range files {
		versions := []string{"ipv4", "ipv6"}
		data, err := os.ReadFile(file)
		if m := drillVersion().FindSubmatch(data); err == nil && m != nil {
			versions = []string{string(m[1])}
		}
		name, err := filepath.Rel(base, file)
		if err != nil {
			name = file
		}
		for _, v := range versions {
			tests = append(tests, Test{
				Name: name + "/" + v, Root: root, Dir: filepath.Dir(file),
				Args:  slices.Concat([]string{drill}, drillArgs[v], []string{filepath.Base(file)}),
				Drill: true,
			})
		}
	}
	return tests
}

// scripts returns the script of this name, or those that the folder's Makefile lists as tests.
func scripts(selftests, collection, name string) (tests []Test) {
	dir := filepath.Join(selftests, collection)
	names := []string{name}
	if st, err := os.Stat(filepath.Join(dir, name)); err != nil || !st.Mode().IsRegular() {
		names = nil
		data, _ := os.ReadFile(filepath.Join(dir, "Makefile")) // without one, there are no tests
		for _, m := range testProgs().FindAllSubmatch(data, -1) {
			names = append(names, strings.Fields(strings.ReplaceAll(string(m[1]), "\\\n", " "))...)
		}
	}
	var limit time.Duration
	settings, _ := os.ReadFile(filepath.Join(dir, "settings")) // optional
	if m := timeSetting().FindSubmatch(settings); m != nil {
		seconds, _ := strconv.Atoi(string(m[1])) // digits; too many of them mean no limit
		limit = time.Duration(seconds) * time.Second
	}
	for _, n := range names {
		st, err := os.Stat(filepath.Join(dir, n))
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		args := []string{"./" + n}
		if st.Mode()&0o111 == 0 {
			args = []string{"bash", n}
		}
		tests = append(tests, Test{Name: collection + "/" + n, Root: selftests, Dir: dir, Args: args, Limit: limit})
	}
	return tests
}

// Folder returns the folder of the selftests of a kernel tree.
func Folder(tree string) (string, error) {
	dir := filepath.Join(tree, "tools", "testing", "selftests")
	if !isDir(dir) {
		return "", exit.Usagef("%s: the tree has no tools/testing/selftests", tree)
	}
	return dir, nil
}
