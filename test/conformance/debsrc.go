// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// sourceLists names Debian's repositories of source packages for a release. apt checks
// downloads against the distribution's keys.
const sourceLists = `deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian %[1]s main
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security %[1]s-security main
`

// fetchSource downloads and unpacks a source package of the installed Debian release,
// once. apt's lists, index and other files are in the cache directory; the system's own
// do not change.
func fetchSource(ctx context.Context, o options, pkg string) error {
	if _, err := sourceDir(o, pkg); err == nil {
		return nil
	}
	release, err := codename("/etc/os-release")
	if err != nil {
		return err
	}
	apt := filepath.Join(o.cache, "apt")
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			return err
		}
	}
	list := filepath.Join(apt, "sources.list")
	if err := os.WriteFile(list, fmt.Appendf(nil, sourceLists, release), 0o644); err != nil {
		return err
	}
	dir := filepath.Join(o.cache, pkg)
	// Remove the leftovers of an earlier attempt.
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	get := []string{
		"apt-get", "-qq",
		"-o", "Dir::Etc::SourceList=" + list, "-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State::Lists=" + filepath.Join(apt, "lists"), "-o", "Dir::Cache=" + apt,
		// apt's own user cannot enter this directory if the repository is in a home
		// directory.
		"-o", "APT::Sandbox::User=root", "-o", "Acquire::http::Timeout=60", "-o", "Acquire::Retries=3",
	}
	// Without the release, apt would take the newest version, and a mirror may lack the
	// sources of security updates.
	for _, verb := range [][]string{{"update"}, {"source", pkg + "/" + release}} {
		if _, err := output(ctx, dir, nil, append(get, verb...)...); err != nil {
			return fmt.Errorf("the source of Debian's package %s: %w", pkg, err)
		}
	}
	_, err = sourceDir(o, pkg)
	return err
}

// sourceDir returns the directory into which fetchSource has unpacked the package.
func sourceDir(o options, pkg string) (string, error) {
	// The files that the package's maintainer has added are unpacked last.
	found, err := filepath.Glob(filepath.Join(o.cache, pkg, "*", "debian", "control"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s: no source package there", filepath.Join(o.cache, pkg))
	}
	return filepath.Dir(filepath.Dir(found[0])), nil
}

// cmakeBuild builds targets of a source package in dir with cmake, once.
func cmakeBuild(ctx context.Context, o options, source, dir string, targets []string, settings ...string) error {
	stamp := filepath.Join(dir, ".complete")
	if _, err := os.Stat(stamp); err == nil {
		return nil
	}
	if _, err := output(ctx, o.cache, nil, append([]string{"cmake", "-S", source, "-B", dir}, settings...)...); err != nil {
		return err
	}
	if _, err := output(ctx, dir, nil, append([]string{"make", fmt.Sprint("-j", runtime.NumCPU())}, targets...)...); err != nil {
		return err
	}
	return os.WriteFile(stamp, nil, 0o644)
}

// codename returns the name of the installed release.
func codename(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	debian, name := false, ""
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), "=")
		value = strings.Trim(value, `"`)
		switch key {
		case "ID":
			debian = value == "debian"
		case "VERSION_CODENAME":
			name = value
		}
	}
	if !debian || name == "" {
		return "", errors.New(file + ": not a Debian release, whose source packages some suites are; choose others with -suites")
	}
	return name, lines.Err()
}
