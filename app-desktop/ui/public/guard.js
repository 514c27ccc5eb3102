// Shows what went wrong before or while the window's program ran: a blank window must never be silent. Plain, old JavaScript
// in a file of its own, which the content security policy asks for.
(function () {
  function show(text) {
    var box = document.getElementById("guard");
    if (!box) {
      box = document.createElement("pre");
      box.id = "guard";
      box.setAttribute("role", "alert");
      (document.body || document.documentElement).prepend(box);
    }
    box.textContent += text + "\n";
  }
  window.addEventListener("error", function (event) {
    show("Tandem's window failed: " + (event.message || "a file is missing"));
  });
  window.addEventListener("unhandledrejection", function (event) {
    show("Tandem's window failed: " + event.reason);
  });
})();
