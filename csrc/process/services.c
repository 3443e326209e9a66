// SPDX-License-Identifier: GPL-2.0-only
/*
 * The host's name services, by the folders of their sockets. target/hide_services.c
 * covers the folders.
 */
#include <string.h>

#include "base/lklhost.h"
#include "process/process.h"

const char *const service_bases[] = { "/run", "/var/run" };

/* Folders in each of the bases. All of them contain sockets that resolve names. */
const char *const service_folders[] = {
	"nscd", "avahi-daemon", SERVICE_RESOLVED, "systemd/userdb",
	"systemd/machine",
};

/**
 * service_is - whether the name of a socket is that of a name service
 *
 * This check serves connect(2) of ordinary programs. A program that bypasses it
 * reaches only the covers.
 */
bool service_is(const char *socket)
{
	size_t i, j, len;

	if (!strcmp(host.abi, "host"))	/* its name services are the host's */
		return false;
	for (i = 0; i < SERVICE_BASES; i++) {
		len = strlen(service_bases[i]);
		if (strncmp(socket, service_bases[i], len) || socket[len] != '/')
			continue;
		for (j = 0; j < SERVICE_FOLDERS; j++) {
			size_t n = strlen(service_folders[j]);

			if (!strncmp(socket + len + 1, service_folders[j], n) &&
			    socket[len + 1 + n] == '/')
				return true;
		}
	}
	return false;
}
