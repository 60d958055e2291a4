# Installation is described here.
